// The client's side of NBD messages, for tests and the load generator: builds options, and parses
// replies. protocol::encode_request() builds requests. Parsing replies of the transmission phase
// does not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"
#include "protocol/reply_encoder.hpp"
#include "tests/protocol/bytes_of.hpp"

namespace gpunbd::protocol::wire {

using test::be16;
using test::be32;
using test::Bytes;
using test::hex;
using test::joined;
using test::text_bytes;

// Numeric option types, so that unknown ones need no cast.
namespace opt {
inline constexpr std::uint32_t export_name = 1, abort = 2, list = 3, peek_export = 4, starttls = 5,
                               info = 6, go = 7, structured = 8, list_meta = 9, set_meta = 10,
                               extended = 11;
}

// The handshake, as the client sends it.

inline constexpr std::uint16_t all_flags = flag_fixed_newstyle | flag_no_zeroes;

// `server`: the flags of the greeting. The client must not set others.
inline Bytes client_flags(std::uint16_t server = all_flags) { return be32(server & all_flags); }

inline Bytes option_header(std::uint32_t type, std::uint32_t length) {
    return joined({hex("49484156454f5054"), be32(type), be32(length)});
}

inline Bytes option(std::uint32_t type, const Bytes& data = {}) {
    return joined({option_header(type, static_cast<std::uint32_t>(data.size())), data});
}

inline Bytes string_field(std::string_view text) {
    return joined({be32(text.size()), text_bytes(text)});
}

// Data of INFO and GO.
inline Bytes info_data(std::string_view name, std::initializer_list<std::uint16_t> infos = {}) {
    Bytes data = joined({string_field(name), be16(infos.size())});
    for (const std::uint16_t info : infos) data = joined({data, be16(info)});
    return data;
}

// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
inline Bytes meta_data(std::string_view name, const std::vector<std::string_view>& queries) {
    Bytes data = joined({string_field(name), be32(queries.size())});
    for (const std::string_view query : queries) data = joined({data, string_field(query)});
    return data;
}

// The handshake, as the client receives it.

inline constexpr std::size_t greeting_size = 18;

inline Bytes greeting() {
    return joined({hex("4e42444d41474943 49484156454f5054"), be16(all_flags)});
}

// The handshake flags, or nothing if this is not a newstyle server.
inline std::optional<std::uint16_t> parse_greeting(std::span<const std::byte, greeting_size> from) {
    if (load_be<std::uint64_t>(from.data()) != init_magic) return std::nullopt;
    if (load_be<std::uint64_t>(from.data() + 8) != option_magic) return std::nullopt;
    return load_be<std::uint16_t>(from.data() + 16);
}

inline constexpr std::size_t option_reply_size = 20;

struct OptionReplyHeader {
    std::uint32_t option = 0;
    OptionReply type{};
    std::uint32_t length = 0;  // of the data that follow

    bool is_error() const { return (static_cast<std::uint32_t>(type) >> 31) != 0; }
};

// Nothing if the magic is wrong.
inline std::optional<OptionReplyHeader> parse_option_reply(
    std::span<const std::byte, option_reply_size> from) {
    if (load_be<std::uint64_t>(from.data()) != option_reply_magic) return std::nullopt;
    return OptionReplyHeader{.option = load_be<std::uint32_t>(from.data() + 8),
                             .type = OptionReply{load_be<std::uint32_t>(from.data() + 12)},
                             .length = load_be<std::uint32_t>(from.data() + 16)};
}

// The data of an INFO reply. Each returns nothing if it is other information.

inline bool is_info(InfoType type, std::span<const std::byte> data, std::size_t size) {
    return data.size() == size &&
           load_be<std::uint16_t>(data.data()) == static_cast<std::uint16_t>(type);
}

struct InfoExport {
    std::uint64_t size = 0;
    std::uint16_t flags = 0;
};

inline std::optional<InfoExport> parse_info_export(std::span<const std::byte> data) {
    if (!is_info(InfoType::export_, data, 12)) return std::nullopt;
    return InfoExport{.size = load_be<std::uint64_t>(data.data() + 2),
                      .flags = load_be<std::uint16_t>(data.data() + 10)};
}

struct InfoBlockSize {
    std::uint32_t minimum = 1;
    std::uint32_t maximum = 0;  // of payload
};

inline std::optional<InfoBlockSize> parse_info_block_size(std::span<const std::byte> data) {
    if (!is_info(InfoType::block_size, data, 14)) return std::nullopt;
    return InfoBlockSize{.minimum = load_be<std::uint32_t>(data.data() + 2),
                         .maximum = load_be<std::uint32_t>(data.data() + 10)};
}

// The transmission phase.

// A simple reply, or a chunk.
struct ReplyHead {
    Headers headers = Headers::simple;  // the format of this header
    Error error = Error::none;          // of a simple reply
    std::uint64_t cookie = 0;
    // Of a chunk:
    std::uint16_t flags = 0;
    ChunkType type = ChunkType::none;
    std::uint64_t offset = 0;  // of the request, with extended headers
    std::uint64_t length = 0;  // of the payload

    bool simple() const { return headers == Headers::simple; }
    bool done() const { return (flags & chunk_flag_done) != 0; }
    bool is_error() const { return (static_cast<std::uint16_t>(type) & 0x8000U) != 0; }
};

// The size of the header that starts with these 4 bytes, or 0 if none does.
inline std::size_t reply_head_size(const std::byte* from) {
    switch (load_be<std::uint32_t>(from)) {
        case simple_reply_magic:
            return simple_reply_size;
        case structured_reply_magic:
            return chunk_header_size;
        case extended_reply_magic:
            return extended_chunk_header_size;
        default:
            return 0;
    }
}

// reply_head_size() bytes, and not 0.
inline ReplyHead parse_reply_head(const std::byte* from) {
    const auto magic = load_be<std::uint32_t>(from);
    ReplyHead head{.cookie = load_be<std::uint64_t>(from + 8)};
    if (magic == simple_reply_magic) {
        head.error = Error{load_be<std::uint32_t>(from + 4)};
        return head;
    }
    head.flags = load_be<std::uint16_t>(from + 4);
    head.type = ChunkType{load_be<std::uint16_t>(from + 6)};
    if (magic == structured_reply_magic) {
        head.headers = Headers::structured;
        head.length = load_be<std::uint32_t>(from + 16);
    } else {
        head.headers = Headers::extended;
        head.offset = load_be<std::uint64_t>(from + 16);
        head.length = load_be<std::uint64_t>(from + 24);
    }
    return head;
}

// The payloads of chunks. Each returns nothing if the payload is malformed.

struct ErrorPayload {
    Error error = Error::none;
    std::string_view text;
    std::optional<std::uint64_t> offset;  // of ERROR_OFFSET
};

inline std::optional<ErrorPayload> parse_error(ChunkType type, std::span<const std::byte> from) {
    const std::size_t behind = type == ChunkType::error_offset ? sizeof(std::uint64_t) : 0;
    if (from.size() < 6 + behind) return std::nullopt;
    ErrorPayload payload;
    payload.error = Error{load_be<std::uint32_t>(from.data())};
    const std::size_t length = load_be<std::uint16_t>(from.data() + 4);
    if (from.size() != 6 + length + behind || payload.error == Error::none) return std::nullopt;
    payload.text = {reinterpret_cast<const char*>(from.data() + 6), length};
    if (behind != 0) payload.offset = load_be<std::uint64_t>(from.data() + 6 + length);
    return payload;
}

inline constexpr std::size_t data_offset_size = 8;  // before the data of OFFSET_DATA
inline constexpr std::size_t hole_size = 12;

// The part of a READ that a chunk covers.
struct Content {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

inline std::optional<Content> parse_content(ChunkType type, std::span<const std::byte> from) {
    const bool hole = type == ChunkType::offset_hole;
    if (hole ? from.size() != hole_size : from.size() <= data_offset_size) return std::nullopt;
    const Content content{
        .offset = load_be<std::uint64_t>(from.data()),
        .length = hole ? load_be<std::uint32_t>(from.data() + 8) : from.size() - data_offset_size};
    if (content.length == 0) return std::nullopt;
    return content;
}

struct Status {
    std::uint32_t context = 0;
    std::vector<Extent> extents;
};

inline std::optional<Status> parse_status(ChunkType type, std::span<const std::byte> from) {
    const bool extended = type == ChunkType::block_status_ext;
    const std::size_t head = extended ? 8 : 4;
    const std::size_t each = extended ? 16 : 8;
    if (from.size() < head + each || from.size() % each != head) return std::nullopt;
    Status payload{.context = load_be<std::uint32_t>(from.data()), .extents = {}};
    const std::size_t count = from.size() / each;
    if (extended && load_be<std::uint32_t>(from.data() + 4) != count) return std::nullopt;
    for (const std::byte* at = from.data() + head; at != from.data() + from.size(); at += each) {
        if (extended && load_be<std::uint32_t>(at + 8) != 0) return std::nullopt;
        payload.extents.push_back(extended ? Extent{.length = load_be<std::uint64_t>(at),
                                                    .status = load_be<std::uint32_t>(at + 12)}
                                           : Extent{.length = load_be<std::uint32_t>(at),
                                                    .status = load_be<std::uint32_t>(at + 4)});
    }
    return payload;
}

}  // namespace gpunbd::protocol::wire
