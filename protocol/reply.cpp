#include "protocol/reply.hpp"

#include <algorithm>
#include <cassert>

#include "protocol/bytes.hpp"

namespace gpunbd::protocol {
namespace {

// Bytes of one block status extent.
constexpr std::uint32_t descriptor_size = 8;
constexpr std::uint32_t extended_descriptor_size = 16;

std::byte* put_chunk_header(std::byte* to, const ReplyTo& reply, ChunkType type,
                            std::uint32_t payload, bool done) {
    assert(reply.headers != Headers::simple);
    const bool extended = reply.headers == Headers::extended;
    to = store_be(to, extended ? extended_reply_magic : structured_reply_magic);
    to = store_be(to, done ? chunk_flag_done : std::uint16_t{0});
    to = store_be(to, static_cast<std::uint16_t>(type));
    to = store_be(to, reply.cookie);
    if (!extended) return store_be(to, payload);
    to = store_be(to, reply.offset);
    return store_be(to, std::uint64_t{payload});
}

std::size_t written(const ReplyHeader& out, const std::byte* end) {
    return static_cast<std::size_t>(end - out.data());
}

}  // namespace

std::size_t encode_simple_reply(ReplyHeader& out, Error error, std::uint64_t cookie) {
    std::byte* to = store_be(out.data(), simple_reply_magic);
    to = store_be(to, static_cast<std::uint32_t>(error));
    return written(out, store_be(to, cookie));
}

std::size_t encode_data_chunk(ReplyHeader& out, const ReplyTo& reply, std::uint64_t offset,
                              std::uint32_t length, bool done) {
    assert(length > 0 && length <= UINT32_MAX - sizeof offset);
    const auto payload = static_cast<std::uint32_t>(sizeof offset + length);
    std::byte* to = put_chunk_header(out.data(), reply, ChunkType::offset_data, payload, done);
    return written(out, store_be(to, offset));
}

std::size_t encode_hole_chunk(ReplyHeader& out, const ReplyTo& reply, std::uint64_t offset,
                              std::uint32_t length, bool done) {
    assert(length > 0);
    constexpr auto payload = static_cast<std::uint32_t>(sizeof offset + sizeof length);
    std::byte* to = put_chunk_header(out.data(), reply, ChunkType::offset_hole, payload, done);
    to = store_be(to, offset);
    return written(out, store_be(to, length));
}

std::size_t encode_done_chunk(ReplyHeader& out, const ReplyTo& reply) {
    return written(out, put_chunk_header(out.data(), reply, ChunkType::none, 0, true));
}

std::size_t encode_error_chunk(ReplyHeader& out, const ReplyTo& reply, ErrorChunk kind, Error error,
                               std::uint16_t message_length) {
    assert(error != Error::none && message_length <= max_string);
    const bool with_offset = kind == ErrorChunk::error_offset;
    const auto payload =
        static_cast<std::uint32_t>(sizeof error + sizeof message_length + message_length +
                                   (with_offset ? sizeof reply.offset : 0));
    std::byte* to = put_chunk_header(
        out.data(), reply, with_offset ? ChunkType::error_offset : ChunkType::error, payload, true);
    to = store_be(to, static_cast<std::uint32_t>(error));
    return written(out, store_be(to, message_length));
}

std::size_t encode_error_offset(ReplyHeader& out, std::uint64_t offset) {
    return written(out, store_be(out.data(), offset));
}

void append_block_status(std::vector<std::byte>& out, const ReplyTo& reply,
                         std::uint32_t context_id, std::span<const Extent> extents, bool done) {
    assert(!extents.empty());
    extents = extents.first(std::min<std::size_t>(extents.size(), max_extents));
    const auto count = static_cast<std::uint32_t>(extents.size());
    const bool extended = reply.headers == Headers::extended;
    const std::uint32_t payload =
        extended ? std::uint32_t{sizeof context_id} + std::uint32_t{sizeof count} +
                       count * extended_descriptor_size
                 : std::uint32_t{sizeof context_id} + count * descriptor_size;

    const std::size_t at = out.size();
    out.resize(at + chunk_header_size_of(reply.headers) + payload);
    std::byte* to = put_chunk_header(
        out.data() + at, reply, extended ? ChunkType::block_status_ext : ChunkType::block_status,
        payload, done);
    to = store_be(to, context_id);
    if (extended) {
        to = store_be(to, count);
        for (const Extent& extent : extents) {
            to = store_be(to, extent.length);
            to = store_be(to, std::uint64_t{extent.status});
        }
        return;
    }
    for (const Extent& extent : extents) {
        assert(extent.length <= UINT32_MAX);
        to = store_be(to, static_cast<std::uint32_t>(extent.length));
        to = store_be(to, extent.status);
    }
}

}  // namespace gpunbd::protocol
