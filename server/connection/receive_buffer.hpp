// A receive buffer that takes many requests in one system call. Workers lend them to sessions that
// have something to receive; an idle connection has none.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace gpunbd::server {

class ReceiveBuffer {
 public:
    static constexpr std::size_t capacity = 256 * 1024;  // bytes

    ReceiveBuffer() : memory_(std::make_unique_for_overwrite<std::byte[]>(capacity)) {}

    std::span<const std::byte> bytes() const { return {memory_.get() + begin_, end_ - begin_}; }
    void consume(std::size_t count) {
        begin_ += count;
        if (begin_ == end_) begin_ = end_ = 0;
    }
    // Where the next bytes go; what is there already is moved to the front if need be.
    std::span<std::byte> room(std::size_t wanted);
    void received(std::size_t count) { end_ += count; }

 private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

}  // namespace gpunbd::server
