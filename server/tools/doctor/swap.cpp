#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "server/protection/locked_memory.hpp"
#include "server/protection/protection.hpp"
#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

namespace {

// MemTotal of /proc/meminfo, in KiB.
std::uint64_t memory_of(const Machine& machine) {
    const std::string text = machine.text("/proc/meminfo").value_or("");
    std::uint64_t value = 0;
    return std::sscanf(text.c_str(), "MemTotal: %" SCNu64, &value) == 1 ? value : 0;
}

// The number of workers of a server without `threads`: that of the CPUs it may run on.
std::uint32_t default_workers(const Machine& machine) {
    const std::string text = machine.text("/proc/self/status").value_or("");
    constexpr std::string_view key = "\nCpus_allowed:\t";  // proc(5): a mask in hexadecimal
    const std::size_t begin = text.find(key);
    if (begin == std::string::npos) return 1;
    int cpus = 0;
    for (const char* at = text.c_str() + begin + key.size(); *at != '\n' && *at != '\0'; ++at) {
        unsigned digit = 0;
        std::from_chars(at, at + 1, digit, 16);  // there are commas between digits
        cpus += std::popcount(digit);
    }
    return static_cast<std::uint32_t>(std::max(cpus, 1));
}

Diagnosis check_reserve(const Machine& machine) {
    const auto reserve = machine.number("/proc/sys/vm/min_free_kbytes").value_or(0);
    const std::uint64_t memory = memory_of(machine);
    const std::string is = fmt::format("vm.min_free_kbytes is {}", reserve);
    const std::uint64_t fit = fit_reserve(memory, default_workers(machine));
    const std::string remedy = fmt::format("sysctl vm.min_free_kbytes={}", fit);
    constexpr const char* what = "the kernel's reserve of memory";
    if (memory != 0 && is_reserve_too_large(reserve, memory)) {
        return warn(what, fmt::format("{}, more than a fifth of {} KiB", is, memory), remedy);
    }
    return no_less(reserve, fit, what, is, remedy);
}

// Documentation/admin-guide/sysctl/vm.rst, compact_unevictable_allowed.
Diagnosis check_compaction(const Machine& machine) {
    const auto allowed = machine.number("/proc/sys/vm/compact_unevictable_allowed");
    if (allowed.value_or(0) == 0) return ok("locked memory", "the kernel does not move it");
    return warn(
        "locked memory",
        "vm.compact_unevictable_allowed is 1: the kernel may move it, which delays accesses",
        "sysctl vm.compact_unevictable_allowed=0");
}

Diagnosis check_real_time(const Machine& machine) {
    const auto runtime = machine.text("/proc/sys/kernel/sched_rt_runtime_us").value_or("");
    if (runtime != "0") return ok("real-time scheduling", "allowed by the kernel");
    return fail("real-time scheduling", "kernel.sched_rt_runtime_us is 0",
                "sysctl kernel.sched_rt_runtime_us=950000");
}

}  // namespace

Diagnoses check_swap(const Machine& machine) {
    Diagnoses out{check_reserve(machine), check_compaction(machine), check_real_time(machine)};
    const std::vector<std::string> lacking = missing_protections();
    for (const std::string& each : lacking) {
        const std::size_t remedy = each.find("; ");
        out.push_back(fail("protection for --swap", each.substr(0, remedy),
                           remedy == std::string::npos ? "" : each.substr(remedy + 2)));
    }
    if (lacking.empty()) {
        out.push_back(ok("protection for --swap", "available for this user"));
    }
    return out;
}

}  // namespace gpunbd::server
