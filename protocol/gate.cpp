#include "protocol/gate.hpp"

#include <algorithm>
#include <bit>

#include "protocol/bytes.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::protocol {
namespace {

// Bytes that follow the header. In a compact header only a WRITE has any.
std::uint64_t payload_after(const Request& request, Headers headers) {
    const bool has_any = headers == Headers::extended
                             ? (request.flags & command_flag::payload_len) != 0
                             : static_cast<CommandType>(request.type) == CommandType::write;
    return has_any ? request.length : 0;
}

// The flags that a command may have. FUA is valid for every command once it is advertised.
std::uint16_t known_flags(CommandType type, Headers headers) {
    namespace flag = command_flag;
    switch (type) {
        case CommandType::read:
            return headers != Headers::simple ? flag::fua | flag::df : flag::fua;
        case CommandType::write:
            return headers == Headers::extended ? flag::fua | flag::payload_len : flag::fua;
        case CommandType::write_zeroes:
            return flag::fua | flag::no_hole | flag::fast_zero;
        case CommandType::block_status:
            return flag::fua | flag::req_one;
        case CommandType::disc:
        case CommandType::flush:
        case CommandType::trim:
        case CommandType::cache:
            return flag::fua;
    }
    return flag::fua;
}

bool changes(CommandType type) {
    switch (type) {
        case CommandType::write:
        case CommandType::trim:
        case CommandType::write_zeroes:
            return true;
        case CommandType::read:
        case CommandType::disc:
        case CommandType::flush:
        case CommandType::cache:
        case CommandType::block_status:
            return false;
    }
    return false;
}

struct Verdict {
    Error error = Error::none;
    std::string_view text = {};
};

constexpr Verdict unknown_command{Error::einval, "unknown command"};
constexpr Verdict unknown_flag{Error::einval, "a flag that this command does not support"};
constexpr Verdict unwanted_payload{Error::einval, "a payload that this command does not support"};
constexpr Verdict missing_payload{Error::einval, "WRITE without PAYLOAD_LEN"};
constexpr Verdict read_only{Error::eperm, "the export is read-only"};
constexpr Verdict flush_of_a_range{Error::einval, "FLUSH takes no offset and no length"};
constexpr Verdict too_long{Error::einval, "longer than the maximum payload"};
constexpr Verdict too_long_for_df{Error::eoverflow, "too long to be read as one chunk"};
constexpr Verdict no_context{Error::einval, "no metadata context is negotiated"};
constexpr Verdict status_of_nothing{Error::einval, "BLOCK_STATUS of zero bytes"};
constexpr Verdict status_payload_size{
    Error::einval, "the BLOCK_STATUS payload is not a length and negotiated contexts"};
constexpr Verdict wrong_context{Error::einval, "a metadata context is unknown or named twice"};
constexpr Verdict unaligned{Error::einval, "not aligned to the minimum block"};
constexpr std::string_view past_end = "beyond the end of the export";

Verdict beyond_end(CommandType type) {
    return {stores(type) ? Error::enospc : Error::einval, past_end};
}

Verdict verdict(const Request& request, CommandType type, const NegotiatedOptions& negotiated) {
    const ExportInfo& info = negotiated.export_info;
    const bool extended = negotiated.headers == Headers::extended;
    if (request.type >= command_types) return unknown_command;
    if (const int unknown = request.flags & ~known_flags(type, negotiated.headers); unknown != 0) {
        return extended && unknown == command_flag::payload_len ? unwanted_payload : unknown_flag;
    }
    if (extended && type == CommandType::write && (request.flags & command_flag::payload_len) == 0)
        return missing_payload;
    if (info.read_only && changes(type)) return read_only;

    switch (type) {
        case CommandType::flush:
            return request.offset == 0 && request.length == 0 ? Verdict{} : flush_of_a_range;
        case CommandType::write:
            if (request.length > info.maximum_payload) return too_long;
            break;
        case CommandType::block_status:
            if (negotiated.contexts.none()) return no_context;
            if (request.length == 0) return status_of_nothing;
            break;
        case CommandType::read:
        case CommandType::disc:
        case CommandType::trim:
        case CommandType::cache:
        case CommandType::write_zeroes:
            break;
    }
    GPUNBD_ASSERT(std::has_single_bit(info.minimum_block), "the minimum block is a power of two");
    if (((request.offset | request.length) & (info.minimum_block - 1)) != 0) return unaligned;
    if (!lies_in(info.size, request.offset, request.length)) return beyond_end(type);
    if (type == CommandType::read && request.length > info.maximum_payload)
        return (request.flags & command_flag::df) != 0 ? too_long_for_df : too_long;
    return {};
}

Refusal refusal(const Request& request, const Verdict& verdict, std::uint64_t discard) {
    GPUNBD_ASSERT(verdict.error != Error::none, "only an invalid request is refused");
    return {.type = request.type,
            .error = verdict.error,
            .cookie = request.cookie,
            .offset = request.offset,
            .discard = discard,
            .text = verdict.text};
}

Validated judge(const Request& request, const NegotiatedOptions& negotiated, MetaContexts contexts,
                std::uint64_t payload) {
    const auto type = static_cast<CommandType>(request.type);
    if (const Verdict found = verdict(request, type, negotiated); found.error != Error::none)
        return refusal(request, found, payload);
    return Command{.type = type,
                   .cookie = request.cookie,
                   .offset = request.offset,
                   .length = request.length,
                   .fua = (request.flags & command_flag::fua) != 0,
                   .no_hole = (request.flags & command_flag::no_hole) != 0,
                   .fast_zero = (request.flags & command_flag::fast_zero) != 0,
                   .one_extent = (request.flags & command_flag::req_one) != 0,
                   .one_chunk = (request.flags & command_flag::df) != 0,
                   .contexts = contexts};
}

// Checks a status payload before it arrives.
Validated expect_status_payload(const Request& request, const NegotiatedOptions& negotiated) {
    constexpr std::size_t shortest = sizeof(std::uint64_t) + sizeof(std::uint32_t);
    if (negotiated.contexts.none()) return refusal(request, no_context, request.length);
    if (request.length < shortest || request.length > max_status_payload ||
        request.length % sizeof(std::uint32_t) != 0)
        return refusal(request, status_payload_size, request.length);
    return StatusPayload{.length = static_cast<std::size_t>(request.length)};
}

}  // namespace

Validated validate(const Request& request, const NegotiatedOptions& negotiated) {
    const auto type = static_cast<CommandType>(request.type);
    // A DISC has no reply, so it cannot be refused.
    if (type == CommandType::disc) return Command{.type = type, .cookie = request.cookie};
    const std::uint64_t payload = payload_after(request, negotiated.headers);
    // Payloads below 2^25 bytes should not be taken for an attack, whatever maximum was advertised
    // ("Block size constraints").
    const std::uint64_t most = std::uint64_t{2} * negotiated.export_info.maximum_payload;
    if (payload > std::max<std::uint64_t>(most, max_payload))
        return Hangup{"a payload far too long"};
    if (type == CommandType::block_status && negotiated.headers == Headers::extended &&
        (request.flags & command_flag::payload_len) != 0)
        return expect_status_payload(request, negotiated);
    return judge(request, negotiated, negotiated.contexts, payload);
}

Validated validate_status(const Request& request, std::span<const std::byte> payload,
                          const NegotiatedOptions& negotiated) {
    GPUNBD_ASSERT(payload.size() == request.length &&
                      payload.size() >= sizeof(std::uint64_t) + sizeof(std::uint32_t) &&
                      payload.size() % sizeof(std::uint32_t) == 0,
                  "a status payload is validated when it is complete, and its length is valid");
    Request meant = request;
    meant.flags = static_cast<std::uint16_t>(meant.flags & ~command_flag::payload_len);
    meant.length = load_be<std::uint64_t>(payload.data());
    MetaContexts chosen;
    for (payload = payload.subspan(sizeof meant.length); !payload.empty();
         payload = payload.subspan(sizeof(std::uint32_t))) {
        const auto id = load_be<std::uint32_t>(payload.data());
        const auto context = static_cast<MetaContext>(id);
        if (id >= known_contexts || !negotiated.contexts.has(context) || chosen.has(context))
            return refusal(request, wrong_context, 0);
        chosen.add(context);
    }
    return judge(meant, negotiated, chosen, 0);
}

Refusal refusal_beyond_end(const Command& command, std::uint64_t discard) {
    const Request request{.type = static_cast<std::uint16_t>(command.type),
                          .cookie = command.cookie,
                          .offset = command.offset};
    return refusal(request, beyond_end(command.type), discard);
}

}  // namespace gpunbd::protocol
