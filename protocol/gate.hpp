// Validates requests: a request becomes either a command that cannot be invalid, or an error.
// Later code does not check again.
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

// In range, aligned, permitted, with only the flags of its type. The length may be 0 except
// for BLOCK_STATUS; offset and length are 0 for DISC and FLUSH. A READ or WRITE is no longer than
// the export's maximum payload; other commands are limited by the export's size only.
struct Command {
    CommandType type = CommandType::disc;
    std::uint64_t cookie = 0;
    std::uint64_t offset = 0;  // bytes
    std::uint64_t length = 0;  // bytes
    bool fua = false;
    bool no_hole = false;
    bool fast_zero = false;
    bool one_extent = false;
    bool one_chunk = false;      // DF
    MetaContexts contexts = {};  // of a BLOCK_STATUS: at least one
};

// `discard` bytes of payload follow the header and must be consumed.
struct Refusal {
    std::uint16_t type = 0;  // as received; it may not be a CommandType
    Error error = Error::einval;
    std::uint64_t cookie = 0;
    std::uint64_t offset = 0;                     // of the request
    std::uint64_t discard = 0;                    // bytes
    std::string_view text = {};                   // the reason; a literal, at most max_string bytes
    std::optional<std::uint64_t> failed_at = {};  // of a READ: the offset that cannot be read
};

// A BLOCK_STATUS with a payload of `length` bytes. validate_status() validates both together.
struct StatusPayload {
    std::size_t length = 0;  // bytes, at most max_status_payload
};
// The length of the range, and each context at most once.
inline constexpr std::size_t max_status_payload =
    sizeof(std::uint64_t) + known_contexts * sizeof(std::uint32_t);

// The connection must close: the payload that follows is too long to consume or skip.
struct Hangup {
    const char* reason = "";
};

using Validated = std::variant<Command, Refusal, StatusPayload, Hangup>;

// Whether the range lies in an export of `size` bytes. The numbers of a client are not added, so
// nothing overflows.
constexpr bool lies_in(std::uint64_t size, std::uint64_t offset, std::uint64_t length) {
    return offset <= size && length <= size - offset;
}

// Whether the range is a part of that of the command.
constexpr bool contains(const Command& command, std::uint64_t offset, std::uint64_t length) {
    return offset >= command.offset && lies_in(command.length, offset - command.offset, length);
}

// Commands that fail with ENOSPC beyond the end of the export; all others with EINVAL.
constexpr bool stores(CommandType type) {
    return type == CommandType::write || type == CommandType::write_zeroes;
}

// DISC is always valid, since it has no reply that could refuse it. ESHUTDOWN, and ENOTSUP for
// zeroing that would not be fast, depend on more than the request and are left to the connection.
Validated validate(const Request& request, const NegotiatedOptions& negotiated);

// After StatusPayload, once the payload is complete: a Command, or a Refusal with nothing to
// discard.
Validated validate_status(const Request& request, std::span<const std::byte> payload,
                          const NegotiatedOptions& negotiated);

// For a command that was valid until the export shrank. `discard` as in Refusal.
Refusal refusal_beyond_end(const Command& command, std::uint64_t discard);

}  // namespace gpunbd::protocol
