// An array that grows without moving its elements: other threads use them meanwhile. Elements that
// are there from the beginning cost one comparison more than in a plain array.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

template <class T>
class GrowingArray {
 public:
    explicit GrowingArray(std::size_t size = 0)
        : first_size_(size), first_(std::make_unique<T[]>(size)), size_(size) {}

    // An element that was added is used only by threads that know of it through a later store of
    // the thread that added it.
    T& operator[](std::size_t index) const {
        if (index < first_size_) [[likely]] {
            return first_[index];
        }
        return added(index);
    }

    // The following functions exclude each other.
    std::size_t size() const { return size_; }
    // Doubles the size until it is at least `size`. Throws std::bad_alloc; what was added stays.
    void grow(std::size_t size) {
        GPUNBD_ASSERT(size_ != 0 || size == 0, "an array that can double has an element");
        while (size_ < size) {
            if (blocks_ == nullptr) blocks_ = std::make_unique<Blocks>();
            (*blocks_)[block_of(size_)] = std::make_unique<T[]>(size_);
            size_ *= 2;
        }
    }

 private:
    // Block n has the elements from first_size_ * 2^n on, as many as are before it.
    static constexpr std::size_t max_blocks = 32;
    using Blocks = std::array<std::unique_ptr<T[]>, max_blocks>;

    std::size_t block_of(std::size_t index) const {
        return static_cast<std::size_t>(std::bit_width(index / first_size_)) - 1;
    }
    T& added(std::size_t index) const {
        const std::size_t block = block_of(index);
        GPUNBD_ASSERT(blocks_ != nullptr && block < max_blocks && (*blocks_)[block] != nullptr,
                      "an array grows before a later element is used");
        return (*blocks_)[block][index - (first_size_ << block)];
    }

    std::size_t first_size_;
    std::unique_ptr<T[]> first_;
    std::unique_ptr<Blocks> blocks_;
    std::size_t size_;
};

}  // namespace gpunbd::storage
