// The one place that knows in which form a reply goes: simple, or as structured chunks. It holds
// what was negotiated; whoever answers a command says only what the answer is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/gate.hpp"
#include "protocol/reply.hpp"

namespace gpunbd::protocol {

class ReplyEncoder {
 public:
    ReplyEncoder() = default;
    explicit ReplyEncoder(const NegotiatedOptions& negotiated)
        : structured_(negotiated.structured_replies) {}

    // May a READ be answered by several chunks, and fail after the first of them? Otherwise its
    // answer is one header and then all of its data ("Simple reply message"; DF).
    bool splits(const Command& read) const { return structured_ && !read.one_chunk; }

    // Each returns the bytes written to `out`.
    // All is done and no payload follows. A READ is never answered by a simple reply once
    // structured ones were negotiated; for the others it is the shorter of two legal forms.
    std::size_t success(ReplyHeader& out, const Command& command) const;
    // Complete in itself. An ERROR chunk wherever it can be one ("Structured replies": SHOULD).
    std::size_t error(ReplyHeader& out, std::uint64_t cookie, Error error) const;
    // All data of a READ that is not split follows.
    std::size_t whole(ReplyHeader& out, const Command& read) const;
    // One chunk of a READ that is split: data follows, or a hole, complete in itself. Lengths are
    // not 0.
    std::size_t data(ReplyHeader& out, const Command& read, std::uint64_t offset,
                     std::uint32_t length, bool last) const;
    std::size_t hole(ReplyHeader& out, const Command& read, std::uint64_t offset,
                     std::uint32_t length, bool last) const;
    // A whole BLOCK_STATUS reply, appended to `out`; at least one extent.
    void block_status(std::vector<std::byte>& out, const Command& command,
                      std::span<const Extent> extents) const;

 private:
    bool structured_ = false;
};

}  // namespace gpunbd::protocol
