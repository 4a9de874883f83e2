#include "server/net/transport/receive_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace gpunbd::server {

std::span<std::byte> ReceiveBuffer::room(std::size_t wanted) {
    if (begin_ != 0 && size_ - end_ < wanted) {
        std::memmove(memory_.get(), memory_.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    return {memory_.get() + end_, std::min(wanted, size_ - end_)};
}

}  // namespace gpunbd::server
