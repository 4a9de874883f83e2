#include <fmt/format.h>
#include <linux/capability.h>

#include <cstdio>

#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

namespace {

constexpr const char* newer_kernel =
    "boot Linux 6.5 or later (Debian 12: the package linux-image-6.12-amd64)";

Diagnosis check_kernel(const Machine& machine) {
    const std::string release = machine.text("/proc/sys/kernel/osrelease").value_or("");
    unsigned major = 0;
    unsigned minor = 0;
    std::sscanf(release.c_str(), "%u.%u", &major, &minor);
    if (major > 6 || (major == 6 && minor >= 5)) return ok("kernel for ublk", release);
    return warn("kernel for ublk", release, newer_kernel);
}

Diagnosis check_control(const Machine& machine) {
    if (machine.has("/dev/ublk-control")) return ok("ublk_drv module", "loaded");
    return warn("ublk_drv module", "not loaded",
                "modprobe ublk_drv, and for each boot: echo ublk_drv "
                ">/etc/modules-load.d/ublk.conf");
}

Diagnosis check_io_uring(const Machine& machine) {
    const auto disabled = machine.number("/proc/sys/kernel/io_uring_disabled").value_or(0);
    // 1: only for processes without CAP_SYS_ADMIN, which ublk needs in any case.
    if (disabled < 2) return ok("io_uring", "not disabled");
    return warn("io_uring", "disabled for all processes", "sysctl kernel.io_uring_disabled=0");
}

}  // namespace

Diagnoses check_ublk(const Machine& machine) {
    Diagnoses out{check_kernel(machine), check_control(machine), check_io_uring(machine)};
    if (machine.capable(CAP_SYS_ADMIN)) {
        out.push_back(ok("right to make ublk devices", "CAP_SYS_ADMIN"));
    } else {
        out.push_back(warn("right to make ublk devices", "this user does not have CAP_SYS_ADMIN",
                           "run the server as root, or see ublk.conf in "
                           "/usr/share/doc/gpunbd/examples"));
    }
    return out;
}

}  // namespace gpunbd::server
