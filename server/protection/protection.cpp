#include "server/protection/protection.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>

#include "server/protection/locked_memory.hpp"
#include "storage/base/owned_fd.hpp"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace gpunbd::server {

namespace {

std::optional<std::string> run_by(int policy) {
    lift_limit(RLIMIT_RTPRIO);
    const sched_param parameters{.sched_priority = real_time_priority};
    if (::sched_setscheduler(0, policy, &parameters) != 0) {
        return fmt::format(
            "its threads cannot have real-time priority (SCHED_FIFO {}: {}); give it CAP_SYS_NICE "
            "(AmbientCapabilities= of systemd, --cap-add SYS_NICE of Docker), or set "
            "LimitRTPRIO={} (systemd), --ulimit rtprio={} (Docker) or ulimit -r {} (a shell)",
            real_time_priority, std::strerror(errno), real_time_priority, real_time_priority,
            real_time_priority);
    }
    if (lift_limit(RLIMIT_RTTIME)) return std::nullopt;
    return "it would be killed after the limit of real-time CPU time (RLIMIT_RTTIME); set "
           "LimitRTTIME=infinity (systemd), --ulimit rttime=-1 (Docker) or ulimit -R unlimited (a "
           "shell)";
}

// The maximum of glibc. Larger blocks have their own mappings, which are unmapped when freed.
constexpr int largest_in_heap = 32 << 20;  // bytes
// For the buffers of a few busy clients and the descriptions of their requests.
constexpr std::size_t room = 4 << 20;  // bytes

std::vector<std::string> take_all() {
    std::vector<std::string> missing;
    for (const auto take :
         {become_io_flusher, escape_oom_killer, lift_lock_limit, run_in_real_time}) {
        if (auto why_not = take()) missing.push_back(std::move(*why_not));
    }
    return missing;
}

[[noreturn]] void report_and_exit(int pipe) {
    std::string text;
    for (const std::string& each : take_all()) text += each + '\n';
    const bool written =
        ::write(pipe, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
}

std::string all_of(int pipe) {
    std::string text;
    std::array<char, 4096> part;
    for (ssize_t got = 0; (got = ::read(pipe, part.data(), part.size())) > 0;) {
        text.append(part.data(), static_cast<std::size_t>(got));
    }
    return text;
}

}  // namespace

std::optional<std::string> why_log_may_hang(int descriptor) {
    struct stat file {};
    struct statfs system {};
    const bool known = ::fstat(descriptor, &file) == 0 && ::fstatfs(descriptor, &system) == 0;
    if (!known || !S_ISREG(file.st_mode) || system.f_type != TMPFS_MAGIC) return std::nullopt;
    return "its log goes to a file in a tmpfs, whose pages can be swapped out, so that a write "
           "could wait for swap; write the log to the journal, a pipe, or a file on a disk";
}

std::optional<std::string> become_io_flusher() {
    if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0) return std::nullopt;
    if (errno == EINVAL) {
        return "the kernel does not support I/O flushers (PR_SET_IO_FLUSHER); use Linux 5.6 or "
               "later";
    }
    return fmt::format(
        "the kernel does not take it for an I/O flusher (PR_SET_IO_FLUSHER: {}); give it "
        "CAP_SYS_RESOURCE (AmbientCapabilities= of systemd, --cap-add SYS_RESOURCE of Docker)",
        std::strerror(errno));
}

std::optional<std::string> run_in_real_time() { return run_by(SCHED_FIFO); }

std::optional<std::string> run_alone_in_real_time() {
    return run_by(SCHED_FIFO | SCHED_RESET_ON_FORK);
}

std::optional<std::string> escape_oom_killer() {
    constexpr std::string_view never = "-1000";
    const OwnedFd file(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    if (file && ::write(file.get(), never.data(), never.size()) > 0) return std::nullopt;
    return fmt::format(
        "the OOM killer may kill it (oom_score_adj: {}); set OOMScoreAdjust={} (systemd) or "
        "--oom-score-adj {} (Docker), or give it CAP_SYS_RESOURCE",
        std::strerror(errno), never, never);
}

void never_shrink_heap() {
    ::mallopt(M_MMAP_THRESHOLD, largest_in_heap);
    ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

void grow_heap() {
    const auto taken = std::make_unique_for_overwrite<volatile char[]>(room);
    taken[0] = 0;  // prevents the compiler from removing the allocation
}

void make_thread_stacks_small() {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, thread_stack);
    ::pthread_setattr_default_np(&attributes);
    ::pthread_attr_destroy(&attributes);
}

std::vector<std::string> protect_process() {
    never_shrink_heap();
    make_thread_stacks_small();
    std::vector<std::string> missing = take_all();
    if (auto why_not = why_log_may_hang()) missing.push_back(std::move(*why_not));
    return missing;
}

// A child process acquires the protections, and exits.
std::vector<std::string> missing_protections() {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0)
        return {"its protections cannot be checked: no descriptors are available"};
    const OwnedFd from(ends[0]);
    OwnedFd to(ends[1]);
    const pid_t child = ::fork();
    if (child == 0) report_and_exit(to.get());
    to = OwnedFd();  // so that the read ends with the child
    std::istringstream lines(all_of(from.get()));
    int status = -1;
    if (child > 0) ::waitpid(child, &status, 0);
    if (status != 0) return {"its protections cannot be checked: no process can be started"};
    std::vector<std::string> missing;
    for (std::string line; std::getline(lines, line);) missing.push_back(line);
    return missing;
}

std::string protection_summary() {
    return fmt::format(
        "current and future memory is locked; all threads have real-time priority (SCHED_FIFO "
        "{}), are I/O flushers and have stacks of {} KiB; the process is exempt from the OOM "
        "killer",
        real_time_priority, thread_stack / 1024);
}

}  // namespace gpunbd::server
