// Kept memory of a machine that swaps to it. While no server has mapped and locked it, it would be
// swapped out to the device that needs the server.
#pragma once

#include <cstddef>
#include <utility>

namespace gpunbd::server {

// Maps the whole file in memory of a descriptor. The mapping is locked if the process has locked
// its future mappings. Does nothing for other descriptors.
class LockedContents {
 public:
    LockedContents() = default;
    explicit LockedContents(int descriptor);
    ~LockedContents();
    LockedContents(LockedContents&& other) noexcept { swap(other); }
    LockedContents& operator=(LockedContents&& other) noexcept {
        swap(other);
        return *this;
    }

    // 0, or the errno of a file in memory that cannot be mapped.
    int error() const { return error_; }

 private:
    void swap(LockedContents& other) noexcept {
        std::swap(start_, other.start_);
        std::swap(bytes_, other.bytes_);
        std::swap(error_, other.error_);
    }

    void* start_ = nullptr;
    std::size_t bytes_ = 0;
    int error_ = 0;
};

}  // namespace gpunbd::server
