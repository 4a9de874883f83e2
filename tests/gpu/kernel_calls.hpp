// Counts the calls to ioctl, mmap and munmap that a thread makes through the C library, in the
// driver's library included: kernel_calls.cpp stands between.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::tests {

// Counts those of the thread that constructs it, until it calls stop().
class KernelCalls {
 public:
    KernelCalls();
    void stop();
    std::uint64_t ioctls() const { return ioctls_; }
    std::uint64_t maps() const { return maps_; }
    // The last few ioctl requests of the whole process since the construction, each with the thread
    // that made it: the driver has a thread of its own.
    std::string text() const;

 private:
    std::uint64_t first_of_all_;
    std::uint64_t ioctls_;
    std::uint64_t maps_;
};

}  // namespace gpunbd::tests
