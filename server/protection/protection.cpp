#include "server/protection/protection.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "server/protection/heap.hpp"
#include "server/protection/io_flusher.hpp"
#include "server/protection/locked_memory.hpp"
#include "server/protection/oom_score.hpp"
#include "server/protection/real_time.hpp"
#include "server/protection/safe_log.hpp"
#include "server/protection/thread_stacks.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

namespace {

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
