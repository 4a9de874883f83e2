#include "protocol/reply.hpp"

#include <algorithm>
#include <cassert>

#include "protocol/bytes.hpp"

namespace gpunbd::protocol {
namespace {

constexpr std::uint32_t descriptor_size = 8;  // of one block status extent

std::byte* put_chunk_header(std::byte* to, ChunkType type, std::uint64_t cookie,
                            std::uint32_t payload, bool done) {
    to = store_be(to, structured_reply_magic);
    to = store_be(to, done ? chunk_flag_done : std::uint16_t{0});
    to = store_be(to, static_cast<std::uint16_t>(type));
    to = store_be(to, cookie);
    return store_be(to, payload);
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

std::size_t encode_data_chunk(ReplyHeader& out, std::uint64_t cookie, std::uint64_t offset,
                              std::uint32_t length, bool done) {
    assert(length > 0 && length <= UINT32_MAX - sizeof offset);
    const auto payload = static_cast<std::uint32_t>(sizeof offset + length);
    std::byte* to = put_chunk_header(out.data(), ChunkType::offset_data, cookie, payload, done);
    return written(out, store_be(to, offset));
}

std::size_t encode_hole_chunk(ReplyHeader& out, std::uint64_t cookie, std::uint64_t offset,
                              std::uint32_t length, bool done) {
    assert(length > 0);
    constexpr auto payload = static_cast<std::uint32_t>(sizeof offset + sizeof length);
    std::byte* to = put_chunk_header(out.data(), ChunkType::offset_hole, cookie, payload, done);
    to = store_be(to, offset);
    return written(out, store_be(to, length));
}

std::size_t encode_done_chunk(ReplyHeader& out, std::uint64_t cookie) {
    return written(out, put_chunk_header(out.data(), ChunkType::none, cookie, 0, true));
}

std::size_t encode_error_chunk(ReplyHeader& out, std::uint64_t cookie, Error error) {
    assert(error != Error::none);
    constexpr std::uint16_t message_length = 0;
    constexpr auto payload = static_cast<std::uint32_t>(sizeof error + sizeof message_length);
    std::byte* to = put_chunk_header(out.data(), ChunkType::error, cookie, payload, true);
    to = store_be(to, static_cast<std::uint32_t>(error));
    return written(out, store_be(to, message_length));
}

void append_block_status(std::vector<std::byte>& out, std::uint64_t cookie,
                         std::uint32_t context_id, std::span<const Extent> extents) {
    assert(!extents.empty());
    extents = extents.first(std::min<std::size_t>(extents.size(), max_extents));
    const auto payload =
        static_cast<std::uint32_t>(sizeof context_id + extents.size() * descriptor_size);

    const std::size_t at = out.size();
    out.resize(at + chunk_header_size + payload);
    std::byte* to =
        put_chunk_header(out.data() + at, ChunkType::block_status, cookie, payload, true);
    to = store_be(to, context_id);
    for (const Extent& extent : extents) {
        to = store_be(to, extent.length);
        to = store_be(to, extent.status);
    }
}

}  // namespace gpunbd::protocol
