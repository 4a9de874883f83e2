// Reply headers ("Simple reply message", "Structured reply chunk message", "Extended reply chunk
// message"), encoded into memory of the caller. Payload follows separately and is never copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/constants.hpp"
#include "protocol/headers.hpp"

namespace gpunbd::protocol {

// The longest header that a reply needs before its payload: an OFFSET_HOLE chunk.
inline constexpr std::size_t max_reply_header = extended_chunk_header_size + 12;
using ReplyHeader = std::array<std::byte, max_reply_header>;

// The reply that a chunk is part of.
struct ReplyTo {
    Headers headers = Headers::structured;
    std::uint64_t cookie = 0;
    std::uint64_t offset = 0;  // of the request, repeated by extended chunks
};

// Each returns the number of bytes written.
std::size_t encode_simple_reply(ReplyHeader& out, Error error, std::uint64_t cookie);
// OFFSET_DATA: `length` bytes of data follow the header, not 0. A READ of nothing is answered by
// encode_done_chunk() alone.
std::size_t encode_data_chunk(ReplyHeader& out, const ReplyTo& reply, std::uint64_t offset,
                              std::uint32_t length, bool done);
// OFFSET_HOLE: no payload follows; length is not 0.
std::size_t encode_hole_chunk(ReplyHeader& out, const ReplyTo& reply, std::uint64_t offset,
                              std::uint32_t length, bool done);
// NONE with DONE.
std::size_t encode_done_chunk(ReplyHeader& out, const ReplyTo& reply);
// ERROR with DONE: a message of message_length bytes follows the header. ERROR_OFFSET:
// encode_error_offset() follows the message.
enum class ErrorChunk : std::uint8_t { error, error_offset };
std::size_t encode_error_chunk(ReplyHeader& out, const ReplyTo& reply, ErrorChunk kind, Error error,
                               std::uint16_t message_length);
// `offset`: of the failure, within the request.
std::size_t encode_error_offset(ReplyHeader& out, std::uint64_t offset);

struct Extent {
    std::uint64_t length = 0;  // bytes, not 0; 32 bits without extended headers
    std::uint32_t status = 0;  // as its context defines it
    bool operator==(const Extent&) const = default;
};
// The most extents in one chunk ("Structured reply types": a client may reject more).
inline constexpr std::uint32_t max_extents = 1 << 20;
// Appends a BLOCK_STATUS chunk for one context, or BLOCK_STATUS_EXT with extended headers. At least
// one extent; those after max_extents are left out, since a reply may cover less. `done`: no other
// context follows.
void append_block_status(std::vector<std::byte>& out, const ReplyTo& reply,
                         std::uint32_t context_id, std::span<const Extent> extents, bool done);

}  // namespace gpunbd::protocol
