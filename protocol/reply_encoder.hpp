// The one place that knows in which form a reply goes: simple, or as structured or extended
// chunks. It holds what was negotiated; whoever answers a command says only what the answer is.
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

    // May a READ be answered by several chunks, and fail after the first of them? Otherwise its
    // answer is one header and then all of its data ("Simple reply message"; DF).
    bool splits(const Command& read) const {
        return headers_ != Headers::simple && !read.one_chunk;
    }

    // Each returns the bytes written to `out`.
    // All is done and no payload follows. With extended headers every reply is a chunk; with
    // structured replies that of a READ must be, and for the others a simple one is shorter.
    std::size_t success(ReplyHeader& out, const Command& command) const;
    // An ERROR chunk wherever it can be one ("Structured replies": SHOULD), and then `text` of the
    // refusal follows it as payload; empty: a simple reply, complete in itself. ERROR_OFFSET where
    // the refusal says at which offset: then encode_error_offset() follows the text.
    struct EncodedError {
        std::size_t header_length = 0;  // bytes written to `out`
        std::string_view text = {};
        bool offset_follows = false;
    };
    EncodedError error(ReplyHeader& out, const Refusal& refusal) const;
    // All data of a READ that is not split follows.
    std::size_t whole(ReplyHeader& out, const Command& read) const;
    // One chunk of a READ that is split: data follows, or a hole, complete in itself. Lengths are
    // not 0.
    std::size_t data(ReplyHeader& out, const Command& read, std::uint64_t offset,
                     std::uint32_t length, bool last) const;
    std::size_t hole(ReplyHeader& out, const Command& read, std::uint64_t offset,
                     std::uint32_t length, bool last) const;
    // What a BLOCK_STATUS is answered for one of its contexts, appended to `out`; at least one
    // extent.
    void block_status(std::vector<std::byte>& out, const Command& command, MetaContext context,
                      std::span<const Extent> extents, bool last) const;

 private:
    ReplyTo reply_to(const Command& command) const {
        return {.headers = headers_, .cookie = command.cookie, .offset = command.offset};
    }

    Headers headers_ = Headers::simple;
};

}  // namespace gpunbd::protocol
