// Programs with this file must export their symbols, so that the driver's library calls these
// functions instead of those of the C library.
#include "tests/gpu/kernel_calls.hpp"

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace {

thread_local std::uint64_t ioctl_count = 0;
thread_local std::uint64_t map_count = 0;
std::atomic<std::uint64_t> all_ioctls{0};

// A ring buffer of requests. NVIDIA's driver uses one ioctl for most operations (RM_CONTROL, type
// 'F', number 0x2a), whose argument has the command at byte 8.
struct Asked {
    unsigned long request = 0;
    std::uint32_t command = 0;
    long thread = 0;
};
constexpr std::uint64_t kept = 64;
constexpr unsigned long rm_control = 'F' << 8 | 0x2a;
std::array<Asked, kept> asked;

void note_ioctl(unsigned long request, const void* argument) {
    ++ioctl_count;
    Asked& place = asked[all_ioctls++ % kept];
    place = {.request = request, .command = 0, .thread = ::syscall(SYS_gettid)};
    if ((request & 0xffff) == rm_control && argument != nullptr) {
        std::memcpy(&place.command, static_cast<const char*>(argument) + 8, sizeof place.command);
    }
}

void* map(void* address, std::size_t length, int protection, int flags, int file, off_t offset) {
    ++map_count;
    return reinterpret_cast<void*>(
        ::syscall(SYS_mmap, address, length, protection, flags, file, offset));
}

}  // namespace

extern "C" {

int ioctl(int file, unsigned long request, ...) {
    std::va_list arguments;
    va_start(arguments, request);
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    note_ioctl(request, argument);
    return static_cast<int>(::syscall(SYS_ioctl, file, request, argument));
}

void* mmap(void* address, std::size_t length, int protection, int flags, int file, off_t offset) {
    return map(address, length, protection, flags, file, offset);
}

void* mmap64(void* address, std::size_t length, int protection, int flags, int file, off_t offset) {
    return map(address, length, protection, flags, file, offset);
}

int munmap(void* address, std::size_t length) {
    ++map_count;
    return static_cast<int>(::syscall(SYS_munmap, address, length));
}

}  // extern "C"

namespace gpunbd::tests {

KernelCalls::KernelCalls() : first_of_all_(all_ioctls), ioctls_(ioctl_count), maps_(map_count) {}

void KernelCalls::stop() {
    ioctls_ = ioctl_count - ioctls_;
    maps_ = map_count - maps_;
}

std::string KernelCalls::text() const {
    std::string text;
    const std::uint64_t end = all_ioctls;
    for (std::uint64_t i = std::max(first_of_all_, end - std::min(end, kept / 4)); i < end; ++i) {
        const Asked& one = asked[i % kept];
        char line[96];
        std::snprintf(line, sizeof line, "ioctl %#lx command %#x by thread %ld (process %d)\n",
                      one.request, one.command, one.thread, ::getpid());
        text += line;
    }
    return text;
}

}  // namespace gpunbd::tests
