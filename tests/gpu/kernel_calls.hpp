// Counts the calls to ioctl, mmap and munmap that a thread makes through the C library, including
// those of the driver's library. kernel_calls.cpp interposes these functions.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::tests {

// Counts calls of the constructing thread until stop().
class KernelCalls {
 public:
    KernelCalls();
    void stop();
    std::uint64_t ioctls() const { return ioctls_; }
    std::uint64_t maps() const { return maps_; }
    // The last ioctl requests of the whole process since the construction, each with its thread,
    // since the driver has a thread of its own.
    std::string text() const;

 private:
    std::uint64_t first_of_all_;
    std::uint64_t ioctls_;
    std::uint64_t maps_;
};

}  // namespace gpunbd::tests
