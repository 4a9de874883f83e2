#include "server/protection/locked_memory.hpp"

#include <fmt/format.h>
#include <linux/capability.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gpunbd::server {

namespace {

// A locked stack cannot grow beyond RLIMIT_MEMLOCK or when memory is short, so it grows now.
void touch_stack() {
    std::array<volatile char, std::size_t{256} * 1024> pages;
    for (std::size_t at = 0; at < pages.size(); at += 1024) pages[at] = 0;
}

// RLIMIT_MEMLOCK does not apply to processes with CAP_IPC_LOCK.
bool may_lock_without_limit() {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
    if (::syscall(SYS_capget, &header, sets.data()) != 0) return false;
    return (sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

}  // namespace

bool lift_limit(int resource) {
    const auto which = static_cast<__rlimit_resource>(resource);
    const rlimit none{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (::setrlimit(which, &none) == 0) return true;
    rlimit limit{};
    if (::getrlimit(which, &limit) != 0) return false;
    limit.rlim_cur = limit.rlim_max;
    return ::setrlimit(which, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

// MCL_ONFAULT: the mapped libraries of the server are not touched in this process. Not MCL_FUTURE:
// an allocation beyond the limit would fail, and the process with it.
std::optional<std::string> lock_touched_memory() {
    ::malloc_trim(0);  // returns the memory of command-line parsing
    touch_stack();
    if (::mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) return std::nullopt;
    return fmt::format(
        "its memory cannot be locked ({}); raise LimitMEMLOCK= (systemd), --ulimit memlock= "
        "(Docker) or ulimit -l (a shell)",
        std::strerror(errno));
}

std::optional<std::string> lift_lock_limit() {
    // A server that executed this program may have disabled huge pages, see lock_all_memory().
    ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    if (lift_limit(RLIMIT_MEMLOCK) || may_lock_without_limit()) return std::nullopt;
    rlimit limit{};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    return fmt::format(
        "its memory cannot be locked permanently (the limit is {} KiB); set "
        "LimitMEMLOCK=infinity (systemd), --ulimit memlock=-1 (Docker) or ulimit -l unlimited (a "
        "shell), or give it CAP_IPC_LOCK",
        limit.rlim_cur / 1024);
}

std::optional<std::string> lock_all_memory() {
    touch_stack();
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) == 0) {
        // Prevents khugepaged from collapsing pages: a thread that touches them meanwhile would
        // wait for khugepaged, which has the lowest priority.
        ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        return std::nullopt;
    }
    return fmt::format("its memory cannot be locked ({}); make exports smaller",
                       std::strerror(errno));
}

}  // namespace gpunbd::server
