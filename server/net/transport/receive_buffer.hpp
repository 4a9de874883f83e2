// A receive buffer for many requests per system call. A connection has one only while it receives;
// an idle connection has none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

class ReceiveBuffer {
 public:
    static constexpr std::size_t capacity = 256 * 1024;  // bytes

    ReceiveBuffer() : ReceiveBuffer(capacity) {}
    // A smaller one.
    explicit ReceiveBuffer(std::size_t size)
        : size_(size), memory_(std::make_unique_for_overwrite<std::byte[]>(size)) {}

    std::size_t size() const { return size_; }  // bytes of capacity
    std::span<const std::byte> bytes() const { return {memory_.get() + begin_, end_ - begin_}; }
    void consume(std::size_t count) {
        GPUNBD_ASSERT(count <= end_ - begin_, "only received bytes are consumed");
        begin_ += count;
        if (begin_ == end_) begin_ = end_ = 0;
    }
    // Where to receive the next bytes. Moves the existing ones to the front if there is too little
    // room.
    std::span<std::byte> room(std::size_t wanted) {
        if (begin_ != 0 && size_ - end_ < wanted) {
            std::memmove(memory_.get(), memory_.get() + begin_, end_ - begin_);
            end_ -= begin_;
            begin_ = 0;
        }
        return {memory_.get() + end_, std::min(wanted, size_ - end_)};
    }
    void received(std::size_t count) {
        GPUNBD_ASSERT(count <= size_ - end_, "bytes are received into the room that was asked for");
        end_ += count;
    }

 private:
    std::size_t size_;
    std::unique_ptr<std::byte[]> memory_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

}  // namespace gpunbd::server
