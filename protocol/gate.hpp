// The one gate: a request either becomes a command that cannot be invalid, or an error. Nothing
// behind it checks again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "protocol/meta_context.hpp"
#include "protocol/negotiation.hpp"
#include "protocol/request.hpp"

namespace gpunbd::protocol {

// In range, aligned, permitted, with only the flags that its type knows. A length of 0 is possible
// except for BLOCK_STATUS; offset and length are 0 for DISC and FLUSH. A READ or WRITE is no longer
// than the export's maximum payload; the others carry no data and have only the export's size as
// their limit. FUA is not told: nothing is answered here before it is complete.
struct Command {
    CommandType type = CommandType::disc;
    std::uint64_t cookie = 0;
    std::uint64_t offset = 0;  // bytes
    std::uint64_t length = 0;  // bytes
    bool no_hole = false;
    bool fast_zero = false;
    bool one_extent = false;
    bool one_chunk = false;      // DF
    MetaContexts contexts = {};  // of a BLOCK_STATUS, at least one
};

// `discard` bytes of payload follow the header and must be consumed all the same.
struct Refusal {
    std::uint16_t type = 0;  // as it came: it may be no CommandType
    Error error = Error::einval;
    std::uint64_t cookie = 0;
    std::uint64_t offset = 0;    // of the request
    std::uint64_t discard = 0;   // bytes
    std::string_view text = {};  // why, for people; a literal, at most max_string bytes
    std::optional<std::uint64_t> failed_at = {};  // of a READ: the offset of what cannot be read
};

// A BLOCK_STATUS that says in its payload what it is about: so many bytes of it follow the header,
// and validate_status() judges the two together.
struct StatusPayload {
    std::size_t length = 0;  // bytes, at most max_status_payload
};
// The length of the range, and each context at most once.
inline constexpr std::size_t max_status_payload =
    sizeof(std::uint64_t) + known_contexts * sizeof(std::uint32_t);

// The connection cannot go on: the payload that follows is absurdly long, so that neither consuming
// nor skipping it is sane.
struct Hangup {
    const char* reason = "";
};

using Validated = std::variant<Command, Refusal, StatusPayload, Hangup>;

// DISC is always valid, having no reply that could refuse it. ESHUTDOWN, and ENOTSUP for a
// zeroing that would not be fast, depend on more than the request: they are the session's and
// storage's.
Validated validate(const Request& request, const NegotiatedOptions& negotiated);

// After StatusPayload, once that many bytes have come: a Command, or a Refusal with nothing left to
// discard.
Validated validate_status(const Request& request, std::span<const std::byte> payload,
                          const NegotiatedOptions& negotiated);

}  // namespace gpunbd::protocol
