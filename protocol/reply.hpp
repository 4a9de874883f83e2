// Reply headers ("Simple reply message", "Structured reply chunk message"), encoded into memory
// that the caller owns. Payload is never copied here: a header says what follows it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/constants.hpp"

namespace gpunbd::protocol {

// The longest header any reply needs before its payload: an OFFSET_HOLE chunk.
inline constexpr std::size_t max_reply_header = chunk_header_size + 12;
using ReplyHeader = std::array<std::byte, max_reply_header>;

// Each returns the number of bytes written.
std::size_t encode_simple_reply(ReplyHeader& out, Error error, std::uint64_t cookie);
// OFFSET_DATA: `length` bytes of data follow the header; length is not 0 (a READ of nothing is
// answered by encode_done_chunk alone).
std::size_t encode_data_chunk(ReplyHeader& out, std::uint64_t cookie, std::uint64_t offset,
                              std::uint32_t length, bool done);
// OFFSET_HOLE: complete in itself; length is not 0.
std::size_t encode_hole_chunk(ReplyHeader& out, std::uint64_t cookie, std::uint64_t offset,
                              std::uint32_t length, bool done);
// NONE with DONE.
std::size_t encode_done_chunk(ReplyHeader& out, std::uint64_t cookie);
// ERROR with DONE and an empty message.
std::size_t encode_error_chunk(ReplyHeader& out, std::uint64_t cookie, Error error);

struct Extent {
    std::uint32_t length = 0;  // bytes, not 0
    std::uint32_t status = 0;  // state_hole | state_zero
    bool operator==(const Extent&) const = default;
};
// The most extents that one chunk may hold ("Structured reply types": a client may drop more).
inline constexpr std::uint32_t max_extents = 1 << 20;
// BLOCK_STATUS for one context with DONE: header and descriptors, appended to `out`. At least one
// extent; those after max_extents are left out, as the specification lets a reply cover less.
void append_block_status(std::vector<std::byte>& out, std::uint64_t cookie,
                         std::uint32_t context_id, std::span<const Extent> extents);

}  // namespace gpunbd::protocol
