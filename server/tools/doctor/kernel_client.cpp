#include <fmt/format.h>
#include <linux/capability.h>

#include <algorithm>

#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

namespace {

constexpr const char* loaded = "/sys/module/nbd";
constexpr std::uint64_t few_kib =
    1024;  // per request: with a lower limit the kernel splits requests unnecessarily

Diagnosis check_module(const Machine& machine) {
    if (!machine.has(loaded)) {
        return fail("nbd module", "not loaded",
                    "modprobe nbd, and for each boot: echo nbd "
                    ">/etc/modules-load.d/nbd.conf");
    }
    return ok("nbd module", "loaded");
}

bool attached(const Machine& machine, const std::string& name) {
    return machine.has("/sys/block/" + name + "/pid");
}

// The module creates nbds_max devices when it is loaded.
Diagnosis check_devices(const Machine& machine) {
    std::size_t all = 0;
    std::size_t free = 0;
    for (const std::string& name : machine.names("/sys/block")) {
        if (!name.starts_with("nbd")) continue;
        ++all;
        if (!attached(machine, name)) ++free;
    }
    const std::string is = fmt::format("{} of {} are free", free, all);
    if (free != 0) return ok("NBD devices", is);
    return warn("NBD devices", is,
                "detach a device, or load the module with more devices while none is attached: "
                "modprobe -r nbd; modprobe nbd nbds_max=64");
}

Diagnosis check_partitions(const Machine& machine) {
    const auto most = machine.number("/sys/module/nbd/parameters/max_part").value_or(0);
    if (most != 0) return ok("partitions", fmt::format("up to {} per device", most));
    return warn("partitions", "max_part is 0: partitions are not detected",
                "echo options nbd max_part=16 >/etc/modprobe.d/nbd.conf, and reload the module");
}

// Only attached devices have a meaningful limit.
Diagnosis check_request_sizes(const Machine& machine) {
    std::string small;
    for (const std::string& name : machine.names("/sys/block")) {
        if (!name.starts_with("nbd")) continue;
        if (!attached(machine, name)) continue;
        const auto kib = machine.number("/sys/block/" + name + "/queue/max_sectors_kb");
        if (kib && *kib < few_kib) small = fmt::format("{} of {}", *kib, name);
    }
    if (small.empty()) return ok("size of requests", "no attached device has a low limit");
    return warn("size of requests", fmt::format("max_sectors_kb is {}", small),
                "echo 1024 >/sys/block/nbdN/queue/max_sectors_kb; gpunbd attach does that");
}

}  // namespace

Diagnoses check_kernel_client(const Machine& machine) {
    Diagnoses out{check_module(machine)};
    if (machine.has(loaded)) {
        out.push_back(check_devices(machine));
        out.push_back(check_partitions(machine));
    }
    out.push_back(check_request_sizes(machine));
    if (machine.capable(CAP_SYS_ADMIN)) {
        out.push_back(ok("right to attach devices", "CAP_SYS_ADMIN"));
    } else {
        out.push_back(warn("right to attach devices", "this user does not have CAP_SYS_ADMIN",
                           "attach as root, or use gpunbd-swap@.service"));
    }
    return out;
}

}  // namespace gpunbd::server
