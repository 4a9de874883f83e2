// Programs that contain this file must export their symbols, so that the driver's library finds these
// functions before those of the C library.
#include "tests/gpu/kernel_calls.hpp"

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>

namespace {

std::atomic<std::uint64_t> ioctl_count{0};
std::atomic<std::uint64_t> map_count{0};

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
    ++ioctl_count;
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

KernelCalls::KernelCalls() : ioctls_(ioctl_count), maps_(map_count) {}

void KernelCalls::stop() {
    ioctls_ = ioctl_count - ioctls_;
    maps_ = map_count - maps_;
}

}  // namespace gpunbd::tests
