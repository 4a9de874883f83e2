#include "server/attach/protection.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "server/listening/owned_fd.hpp"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57  // Linux 5.6
#endif

namespace gpunbd::attach {
namespace {

// A stack that has grown is locked, and need not grow when there is nothing to grow into.
void touch_room_on_stack() {
    std::array<volatile char, std::size_t{256} * 1024> room;
    for (std::size_t at = 0; at < room.size(); at += 1024) room[at] = 0;
}

// What is freed stays with the process, so that it is there, locked, when a connection is replaced.
void keep_heap() {
    constexpr std::size_t enough = std::size_t{1} << 20;
    ::mallopt(M_TRIM_THRESHOLD, -1);
    ::mallopt(M_MMAP_MAX, 0);
    const std::unique_ptr<char[]> room(new char[enough]);
    for (std::size_t at = 0; at < enough; at += 1024) {
        static_cast<volatile char*>(room.get())[at] = 0;
    }
}

int write_file(const char* path, std::string_view text) {
    const server::OwnedFd file(::open(path, O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) return errno;
    return ::write(file.get(), text.data(), text.size()) < 0 ? errno : 0;
}

}  // namespace

std::vector<std::string> protect_process() {
    std::vector<std::string> out;
    touch_room_on_stack();
    keep_heap();
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        out.push_back(
            fmt::format("its memory cannot be locked ({}); give it CAP_IPC_LOCK, or "
                        "LimitMEMLOCK=infinity (systemd), ulimit -l unlimited (a shell)",
                        std::strerror(errno)));
    }
    if (const int error = write_file("/proc/self/oom_score_adj", "-1000")) {
        out.push_back(
            fmt::format("it can be killed where memory is short ({}); give it CAP_SYS_RESOURCE, or "
                        "OOMScoreAdjust=-1000 (systemd)",
                        std::strerror(error)));
    }
    if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0) {
        out.push_back(
            fmt::format("the kernel may have it wait for its own device ({}); give it "
                        "CAP_SYS_RESOURCE, and a kernel of 5.6 or later",
                        std::strerror(errno)));
    }
    return out;
}

}  // namespace gpunbd::attach
