#include "protocol/reply_encoder.hpp"

#include <algorithm>

#include "protocol/bytes.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::protocol {

namespace {

// Bytes of one block status extent.
constexpr std::uint32_t descriptor_size = 8;
constexpr std::uint32_t extended_descriptor_size = 16;

std::size_t put_simple(ReplyHeader& out, Error error, std::uint64_t cookie) {
    std::byte* to = store_be(out.data(), simple_reply_magic);
    to = store_be(to, static_cast<std::uint32_t>(error));
    store_be(to, cookie);
    return simple_reply_size;
}

}  // namespace

std::byte* ReplyEncoder::put_header(std::byte* to, const Chunk& chunk) const {
    GPUNBD_ASSERT(headers_ != Headers::simple, "only negotiated headers are sent");
    GPUNBD_ASSERT(chunk.last || chunk.type != ChunkType::none,
                  "a chunk without payload ends a reply");
    const bool extended = headers_ == Headers::extended;
    to = store_be(to, extended ? extended_reply_magic : structured_reply_magic);
    to = store_be(to, chunk.last ? chunk_flag_done : std::uint16_t{0});
    to = store_be(to, static_cast<std::uint16_t>(chunk.type));
    to = store_be(to, chunk.cookie);
    if (!extended) return store_be(to, chunk.payload);
    to = store_be(to, chunk.offset);
    return store_be(to, std::uint64_t{chunk.payload});
}

std::size_t ReplyEncoder::success(ReplyHeader& out, const Command& command) const {
    GPUNBD_ASSERT(command.type != CommandType::disc, "a DISC has no reply");
    const bool chunk = headers_ == Headers::extended ||
                       (headers_ == Headers::structured && command.type == CommandType::read);
    if (!chunk) return put_simple(out, Error::none, command.cookie);
    put_header(out.data(), {.cookie = command.cookie, .offset = command.offset});
    return header_size();
}

ReplyEncoder::EncodedError ReplyEncoder::error(ReplyHeader& out, const Refusal& refusal) const {
    GPUNBD_ASSERT(refusal.error != Error::none, "an error reply has an error");
    GPUNBD_ASSERT(refusal.text.size() <= max_string,
                  "reasons are texts of the server that a client accepts as a string");
    if (headers_ == Headers::simple) {
        return {.header_length = put_simple(out, refusal.error, refusal.cookie)};
    }
    const bool placed = refusal.failed_at.has_value();
    const auto length = static_cast<std::uint16_t>(refusal.text.size());
    const std::size_t fields = sizeof refusal.error + sizeof length;
    std::byte* to =
        put_header(out.data(), {.type = placed ? ChunkType::error_offset : ChunkType::error,
                                .cookie = refusal.cookie,
                                .offset = refusal.offset,
                                .payload = static_cast<std::uint32_t>(
                                    fields + length + (placed ? sizeof *refusal.failed_at : 0))});
    to = store_be(to, static_cast<std::uint32_t>(refusal.error));
    store_be(to, length);
    return {
        .header_length = header_size() + fields, .text = refusal.text, .offset_follows = placed};
}

std::size_t ReplyEncoder::error_offset(ReplyHeader& out, std::uint64_t offset) {
    store_be(out.data(), offset);
    return sizeof offset;
}

std::size_t ReplyEncoder::whole(ReplyHeader& out, const Command& read) const {
    GPUNBD_ASSERT(read.type == CommandType::read && !splits(read),
                  "only a READ that is not split has one header for all of its data");
    GPUNBD_ASSERT(read.length <= UINT32_MAX, "the gate limits the length of a READ to 32 bits");
    return headers_ == Headers::simple
               ? put_simple(out, Error::none, read.cookie)
               : data(out, read, read.offset, static_cast<std::uint32_t>(read.length), true);
}

std::size_t ReplyEncoder::data(ReplyHeader& out, const Command& read, std::uint64_t offset,
                               std::uint32_t length, bool last) const {
    GPUNBD_ASSERT(length > 0, "a chunk of data has data");
    GPUNBD_ASSERT(length <= UINT32_MAX - sizeof offset,
                  "the length of a chunk, with its offset, has 32 bits");
    GPUNBD_ASSERT(contains(read, offset, length), "the data of a chunk was asked for");
    std::byte* const to =
        put_header(out.data(), {.type = ChunkType::offset_data,
                                .cookie = read.cookie,
                                .offset = read.offset,
                                .payload = static_cast<std::uint32_t>(sizeof offset + length),
                                .last = last});
    store_be(to, offset);
    return header_size() + sizeof offset;
}

std::size_t ReplyEncoder::hole(ReplyHeader& out, const Command& read, std::uint64_t offset,
                               std::uint32_t length, bool last) const {
    GPUNBD_ASSERT(length > 0, "a hole has a length");
    GPUNBD_ASSERT(splits(read), "a READ that is not split gets zeroes for a hole");
    GPUNBD_ASSERT(contains(read, offset, length), "a hole lies in the range that was asked for");
    constexpr auto payload = static_cast<std::uint32_t>(sizeof offset + sizeof length);
    std::byte* const to = put_header(out.data(), {.type = ChunkType::offset_hole,
                                                  .cookie = read.cookie,
                                                  .offset = read.offset,
                                                  .payload = payload,
                                                  .last = last});
    store_be(store_be(to, offset), length);
    return header_size() + payload;
}

void ReplyEncoder::block_status(std::vector<std::byte>& out, const Command& command,
                                MetaContext context, std::span<const Extent> extents,
                                bool last) const {
    GPUNBD_ASSERT(!extents.empty(), "a reply to BLOCK_STATUS describes at least one extent");
    GPUNBD_ASSERT(command.contexts.has(context), "a reply describes a context that was asked for");
    extents = extents.first(std::min<std::size_t>(extents.size(), max_extents));
    const auto count = static_cast<std::uint32_t>(extents.size());
    const std::uint32_t id = id_of(context);
    const bool extended = headers_ == Headers::extended;
    const std::uint32_t payload = extended
                                      ? std::uint32_t{sizeof id} + std::uint32_t{sizeof count} +
                                            count * extended_descriptor_size
                                      : std::uint32_t{sizeof id} + count * descriptor_size;

    const std::size_t at = out.size();
    out.resize(at + header_size() + payload);
    std::byte* to = put_header(
        out.data() + at, {.type = extended ? ChunkType::block_status_ext : ChunkType::block_status,
                          .cookie = command.cookie,
                          .offset = command.offset,
                          .payload = payload,
                          .last = last});
    to = store_be(to, id);
    if (extended) {
        to = store_be(to, count);
        for (const Extent& extent : extents) {
            to = store_be(to, extent.length);
            to = store_be(to, std::uint64_t{extent.status});
        }
        return;
    }
    for (const Extent& extent : extents) {
        GPUNBD_ASSERT(extent.length <= UINT32_MAX,
                      "an extent has 32 bits, unless extended headers are negotiated");
        to = store_be(to, static_cast<std::uint32_t>(extent.length));
        to = store_be(to, extent.status);
    }
}

}  // namespace gpunbd::protocol
