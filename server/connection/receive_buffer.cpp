#include "server/connection/receive_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace gpunbd::server {

std::span<std::byte> ReceiveBuffer::room(std::size_t wanted) {
    if (begin_ != 0 && capacity - end_ < wanted) {
        std::memmove(memory_.get(), memory_.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    return {memory_.get() + end_, std::min(wanted, capacity - end_)};
}

}  // namespace gpunbd::server
