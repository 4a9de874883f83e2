// Encodes replies in the negotiated form: simple, or as structured or extended chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/gate.hpp"
#include "protocol/reply.hpp"

namespace gpunbd::protocol {

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
    // text: a simple reply. ERROR_OFFSET if the refusal has an offset: then encode_error_offset()
    // follows the text.
    struct EncodedError {
        std::size_t header_length = 0;  // bytes written to `out`
        std::string_view text = {};
        bool offset_follows = false;
    };
    EncodedError error(ReplyHeader& out, const Refusal& refusal) const;
    // All data of a READ that is not split follows.
    std::size_t whole(ReplyHeader& out, const Command& read) const;
    // One chunk of a READ that is split: data follows, or it is a hole. Lengths are not 0.
    std::size_t data(ReplyHeader& out, const Command& read, std::uint64_t offset,
                     std::uint32_t length, bool last) const;
    std::size_t hole(ReplyHeader& out, const Command& read, std::uint64_t offset,
                     std::uint32_t length, bool last) const;
    // Appends the answer of a BLOCK_STATUS for one context; at least one extent.
    void block_status(std::vector<std::byte>& out, const Command& command, MetaContext context,
                      std::span<const Extent> extents, bool last) const;

 private:
    ReplyTo reply_to(const Command& command) const {
        return {.headers = headers_, .cookie = command.cookie, .offset = command.offset};
    }

    Headers headers_ = Headers::simple;
};

}  // namespace gpunbd::protocol
