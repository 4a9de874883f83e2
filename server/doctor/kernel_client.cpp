#include <fmt/format.h>
#include <linux/capability.h>

#include <algorithm>

#include "server/doctor/topics.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint64_t few_kib = 1024;  // of a request: below, the kernel cuts more than it needs

Diagnosis look_at_module(const Machine& machine) {
    if (!machine.has("/sys/module/nbd")) {
        return bad("nbd module", "not loaded",
                   "modprobe nbd, and for each boot: echo nbd "
                   ">/etc/modules-load.d/nbd.conf");
    }
    const auto devices = machine.number("/sys/module/nbd/parameters/nbds_max");
    return well("nbd module", fmt::format("loaded, {} devices", devices.value_or(0)));
}

// Only an attached device says anything.
Diagnosis look_at_request_sizes(const Machine& machine) {
    std::string small;
    for (const std::string& name : machine.names("/sys/block")) {
        if (!name.starts_with("nbd")) continue;
        const std::string folder = "/sys/block/" + name;
        if (!machine.has(folder + "/pid")) continue;
        const auto kib = machine.number(folder + "/queue/max_sectors_kb");
        if (kib && *kib < few_kib) small = fmt::format("{} of {}", *kib, name);
    }
    if (small.empty()) return well("size of requests", "no attached device keeps them small");
    return doubtful("size of requests", fmt::format("max_sectors_kb is {}", small),
                    "echo 1024 >/sys/block/nbdN/queue/max_sectors_kb; gpunbd attach does that");
}

}  // namespace

Diagnoses look_at_kernel_client(const Machine& machine) {
    Diagnoses out{look_at_module(machine), look_at_request_sizes(machine)};
    if (machine.capable(CAP_SYS_ADMIN)) {
        out.push_back(well("right to attach devices", "CAP_SYS_ADMIN"));
    } else {
        out.push_back(doubtful("right to attach devices", "this user has none",
                               "attach as root, or by gpunbd-swap@.service"));
    }
    return out;
}

}  // namespace gpunbd::server
