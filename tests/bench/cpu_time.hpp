// Wall-clock time and CPU time, of this process and of another one, in nanoseconds.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <optional>

namespace gpunbd::bench {

inline std::uint64_t clock_ns(clockid_t clock) {
    timespec now{};
    if (clock_gettime(clock, &now) != 0) return 0;
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::uint64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline std::uint64_t own_cpu_ns() { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

// User and system time of all threads of the process, including ended ones. The utime and stime of
// /proc have a resolution of 10 ms, which is too coarse for a window of a second.
inline std::optional<std::uint64_t> process_cpu_ns(pid_t pid) {
    clockid_t clock{};
    if (clock_getcpuclockid(pid, &clock) != 0) return std::nullopt;
    timespec now{};
    if (clock_gettime(clock, &now) != 0) return std::nullopt;
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace gpunbd::bench
