#include "protocol/reply_encoder.hpp"

#include "protocol/meta_context.hpp"

namespace gpunbd::protocol {

std::size_t ReplyEncoder::success(ReplyHeader& out, const Command& command) const {
    return structured_ && command.type == CommandType::read
               ? encode_done_chunk(out, command.cookie)
               : encode_simple_reply(out, Error::none, command.cookie);
}

std::size_t ReplyEncoder::error(ReplyHeader& out, std::uint64_t cookie, Error error) const {
    return structured_ ? encode_error_chunk(out, cookie, error)
                       : encode_simple_reply(out, error, cookie);
}

std::size_t ReplyEncoder::whole(ReplyHeader& out, const Command& read) const {
    // The gate lets no READ pass that is longer than a payload may be.
    return structured_ ? encode_data_chunk(out, read.cookie, read.offset,
                                           static_cast<std::uint32_t>(read.length), true)
                       : encode_simple_reply(out, Error::none, read.cookie);
}

std::size_t ReplyEncoder::data(ReplyHeader& out, const Command& read, std::uint64_t offset,
                               std::uint32_t length, bool last) const {
    return encode_data_chunk(out, read.cookie, offset, length, last);
}

std::size_t ReplyEncoder::hole(ReplyHeader& out, const Command& read, std::uint64_t offset,
                               std::uint32_t length, bool last) const {
    return encode_hole_chunk(out, read.cookie, offset, length, last);
}

void ReplyEncoder::block_status(std::vector<std::byte>& out, const Command& command,
                                std::span<const Extent> extents) const {
    append_block_status(out, command.cookie, base_allocation_id, extents);
}

}  // namespace gpunbd::protocol
