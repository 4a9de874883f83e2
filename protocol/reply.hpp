// Reply headers ("Simple reply message", "Structured reply chunk message", "Extended reply chunk
// message"), encoded into memory that the caller owns. Payload is never copied here: a header says
// what follows it.
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

// The longest header any reply needs before its payload: an OFFSET_HOLE chunk.
inline constexpr std::size_t max_reply_header = extended_chunk_header_size + 12;
using ReplyHeader = std::array<std::byte, max_reply_header>;

// Of which reply a chunk is part.
struct ReplyTo {
    Headers headers = Headers::structured;  // not simple
    std::uint64_t cookie = 0;
    std::uint64_t offset = 0;  // of the request: an extended chunk repeats it
};

// Each returns the number of bytes written.
std::size_t encode_simple_reply(ReplyHeader& out, Error error, std::uint64_t cookie);
// OFFSET_DATA: `length` bytes of data follow the header; length is not 0 (a READ of nothing is
// answered by encode_done_chunk alone).
std::size_t encode_data_chunk(ReplyHeader& out, const ReplyTo& reply, std::uint64_t offset,
                              std::uint32_t length, bool done);
// OFFSET_HOLE: complete in itself; length is not 0.
std::size_t encode_hole_chunk(ReplyHeader& out, const ReplyTo& reply, std::uint64_t offset,
                              std::uint32_t length, bool done);
// NONE with DONE.
std::size_t encode_done_chunk(ReplyHeader& out, const ReplyTo& reply);
// ERROR with DONE; its message, of so many bytes, follows the header. ERROR_OFFSET where behind
// that follows what encode_error_offset() gives.
enum class ErrorChunk : std::uint8_t { error, error_offset };
std::size_t encode_error_chunk(ReplyHeader& out, const ReplyTo& reply, ErrorChunk kind, Error error,
                               std::uint16_t message_length);
// `offset`: where it failed, within the request.
std::size_t encode_error_offset(ReplyHeader& out, std::uint64_t offset);

struct Extent {
    std::uint64_t length = 0;  // bytes, not 0; within 32 bits but for extended headers
    std::uint32_t status = 0;  // as its context defines it
    bool operator==(const Extent&) const = default;
};
// The most extents that one chunk may hold ("Structured reply types": a client may drop more).
inline constexpr std::uint32_t max_extents = 1 << 20;
// BLOCK_STATUS for one context, BLOCK_STATUS_EXT with extended headers: header and descriptors,
// appended to `out`. At least one extent; those after max_extents are left out, as the
// specification lets a reply cover less. `done`: no other context follows.
void append_block_status(std::vector<std::byte>& out, const ReplyTo& reply,
                         std::uint32_t context_id, std::span<const Extent> extents, bool done);

}  // namespace gpunbd::protocol
