#include "protocol/reply_encoder.hpp"

namespace gpunbd::protocol {

std::size_t ReplyEncoder::success(ReplyHeader& out, const Command& command) const {
    const bool chunk = headers_ == Headers::extended ||
                       (headers_ == Headers::structured && command.type == CommandType::read);
    return chunk ? encode_done_chunk(out, reply_to(command))
                 : encode_simple_reply(out, Error::none, command.cookie);
}

ReplyEncoder::EncodedError ReplyEncoder::error(ReplyHeader& out, const Refusal& refusal) const {
    if (headers_ == Headers::simple) {
        return {.header_length = encode_simple_reply(out, refusal.error, refusal.cookie)};
    }
    const ReplyTo reply{.headers = headers_, .cookie = refusal.cookie, .offset = refusal.offset};
    const bool placed = refusal.failed_at.has_value();
    const ErrorChunk kind = placed ? ErrorChunk::error_offset : ErrorChunk::error;
    return {.header_length = encode_error_chunk(out, reply, kind, refusal.error,
                                                static_cast<std::uint16_t>(refusal.text.size())),
            .text = refusal.text,
            .offset_follows = placed};
}

std::size_t ReplyEncoder::whole(ReplyHeader& out, const Command& read) const {
    // The gate limits the length of a READ to 32 bits.
    return headers_ == Headers::simple
               ? encode_simple_reply(out, Error::none, read.cookie)
               : encode_data_chunk(out, reply_to(read), read.offset,
                                   static_cast<std::uint32_t>(read.length), true);
}

std::size_t ReplyEncoder::data(ReplyHeader& out, const Command& read, std::uint64_t offset,
                               std::uint32_t length, bool last) const {
    return encode_data_chunk(out, reply_to(read), offset, length, last);
}

std::size_t ReplyEncoder::hole(ReplyHeader& out, const Command& read, std::uint64_t offset,
                               std::uint32_t length, bool last) const {
    return encode_hole_chunk(out, reply_to(read), offset, length, last);
}

void ReplyEncoder::block_status(std::vector<std::byte>& out, const Command& command,
                                MetaContext context, std::span<const Extent> extents,
                                bool last) const {
    append_block_status(out, reply_to(command), id_of(context), extents, last);
}

}  // namespace gpunbd::protocol
