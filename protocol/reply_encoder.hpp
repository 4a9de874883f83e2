// Encodes reply headers in the negotiated form: simple ("Simple reply message"), or as structured
// or extended chunks ("Structured reply chunk message", "Extended reply chunk message"). Payload
// follows separately and is never copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"
#include "protocol/gate.hpp"

namespace gpunbd::protocol {

// The longest header that a reply needs before its payload: an OFFSET_HOLE chunk.
inline constexpr std::size_t max_reply_header = extended_chunk_header_size + 12;
using ReplyHeader = std::array<std::byte, max_reply_header>;

struct Extent {
    std::uint64_t length = 0;  // bytes, not 0; 32 bits without extended headers
    std::uint32_t status = 0;  // as its context defines it
    bool operator==(const Extent&) const = default;
};
// The most extents in one chunk ("Structured reply types": a client may reject more).
inline constexpr std::uint32_t max_extents = 1 << 20;

class ReplyEncoder {
 public:
    ReplyEncoder() = default;
    explicit ReplyEncoder(const NegotiatedOptions& negotiated) : headers_(negotiated.headers) {}

    // True if a READ may be answered by several chunks and fail after the first of them. Otherwise
    // its answer is one header and all of its data ("Simple reply message"; DF).
    bool splits(const Command& read) const {
        return headers_ != Headers::simple && !read.one_chunk;
    }

    // Each returns the bytes written to `out`. success(): no payload follows. With extended headers
    // every reply is a chunk; with structured replies that of a READ must be one, and for other
    // commands a simple reply is shorter.
    std::size_t success(ReplyHeader& out, const Command& command) const;
    // An ERROR chunk where possible ("Structured replies": SHOULD), with `text` as payload; empty
    // text: a simple reply. ERROR_OFFSET if the refusal has an offset: then error_offset() follows
    // the text.
    struct EncodedError {
        std::size_t header_length = 0;  // bytes written to `out`
        std::string_view text = {};
        bool offset_follows = false;
    };
    EncodedError error(ReplyHeader& out, const Refusal& refusal) const;
    // `offset`: where the READ failed.
    static std::size_t error_offset(ReplyHeader& out, std::uint64_t offset);
    // All data of a READ that is not split follows.
    std::size_t whole(ReplyHeader& out, const Command& read) const;
    // One chunk of a READ that is split: data follows, or it is a hole. Lengths are not 0.
    std::size_t data(ReplyHeader& out, const Command& read, std::uint64_t offset,
                     std::uint32_t length, bool last) const;
    std::size_t hole(ReplyHeader& out, const Command& read, std::uint64_t offset,
                     std::uint32_t length, bool last) const;
    // Appends the answer of a BLOCK_STATUS for one context; at least one extent. Those after
    // max_extents are left out, since a reply may cover less. `last`: no other context follows.
    void block_status(std::vector<std::byte>& out, const Command& command, MetaContext context,
                      std::span<const Extent> extents, bool last) const;

 private:
    struct Chunk {
        ChunkType type = ChunkType::none;
        std::uint64_t cookie = 0;
        std::uint64_t offset = 0;   // of the request, repeated by extended chunks
        std::uint32_t payload = 0;  // bytes
        bool last = true;
    };
    // Returns the first byte after the header.
    std::byte* put_header(std::byte* to, const Chunk& chunk) const;
    std::size_t header_size() const { return chunk_header_size_of(headers_); }

    Headers headers_ = Headers::simple;
};

}  // namespace gpunbd::protocol
