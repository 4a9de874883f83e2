// Kept memory of a machine that swaps to it: while no server has it mapped and locked, it would be
// swapped out itself, to where only a server can get it back from.
#pragma once

#include <cstddef>
#include <utility>

namespace gpunbd::server {

// A mapping of all that a descriptor stands for: locked, where the process has locked what it will
// map. Nothing, where that is no file in memory.
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

    // 0, or the errno of a file in memory that cannot be held.
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
