// Counts the calls to ioctl, mmap and munmap that this process makes through the C library, the
// driver's own included: kernel_calls.cpp stands between.
#pragma once

#include <cstdint>

namespace gpunbd::tests {

// Counts from its construction to stop(), over all threads.
class KernelCalls {
 public:
    KernelCalls();
    void stop();
    std::uint64_t ioctls() const { return ioctls_; }
    std::uint64_t maps() const { return maps_; }

 private:
    std::uint64_t ioctls_;
    std::uint64_t maps_;
};

}  // namespace gpunbd::tests
