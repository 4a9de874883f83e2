#include "protocol/gate.hpp"

#include <algorithm>

namespace gpunbd::protocol {
namespace {

// Payloads below 2^25 bytes should not be taken for an attack, whatever maximum was advertised
// ("Block size constraints").
std::uint64_t max_discard(const ExportInfo& info) {
    return std::max<std::uint64_t>(std::uint64_t{2} * info.maximum_payload, max_payload);
}

// The flags that mean something for a command. FUA is valid everywhere once it is advertised.
std::uint16_t known_flags(CommandType type, bool structured) {
    namespace flag = command_flag;
    switch (type) {
        case CommandType::read:
            return structured ? flag::fua | flag::df : flag::fua;
        case CommandType::write_zeroes:
            return flag::fua | flag::no_hole | flag::fast_zero;
        case CommandType::block_status:
            return flag::fua | flag::req_one;
        default:
            return flag::fua;
    }
}

bool changes(CommandType type) {
    return type == CommandType::write || type == CommandType::trim ||
           type == CommandType::write_zeroes;
}

Error error_past_end(CommandType type) {
    return type == CommandType::write || type == CommandType::write_zeroes ? Error::enospc
                                                                           : Error::einval;
}

// Written so that no sum of the client's numbers is formed.
bool in_range(const Request& request, std::uint64_t size) {
    return request.offset <= size && request.length <= size - request.offset;
}

bool aligned(const Request& request, std::uint32_t block) {
    return ((request.offset | request.length) & (block - 1)) == 0;
}

Error verdict(const Request& request, CommandType type, const NegotiatedOptions& negotiated) {
    const ExportInfo& info = negotiated.export_info;
    if (request.type > static_cast<std::uint16_t>(CommandType::block_status)) return Error::einval;
    if ((request.flags & ~known_flags(type, negotiated.structured_replies)) != 0)
        return Error::einval;
    if (info.read_only && changes(type)) return Error::eperm;

    switch (type) {
        case CommandType::flush:
            return request.offset == 0 && request.length == 0 ? Error::none : Error::einval;
        case CommandType::write:
            if (request.length > info.maximum_payload) return Error::einval;
            break;
        case CommandType::block_status:
            if (!negotiated.base_allocation || request.length == 0) return Error::einval;
            break;
        default:
            break;
    }
    if (!aligned(request, info.minimum_block)) return Error::einval;
    if (!in_range(request, info.size)) return error_past_end(type);
    if (type == CommandType::read && request.length > info.maximum_payload)
        return (request.flags & command_flag::df) != 0 ? Error::eoverflow : Error::einval;
    return Error::none;
}

}  // namespace

Validated validate(const Request& request, const NegotiatedOptions& negotiated) {
    const auto type = static_cast<CommandType>(request.type);
    // A DISC has no reply, so there is no way to refuse one.
    if (type == CommandType::disc) return Command{.type = type, .cookie = request.cookie};
    if (type == CommandType::write && request.length > max_discard(negotiated.export_info))
        return Hangup{"WRITE payload absurdly long"};

    const Error error = verdict(request, type, negotiated);
    if (error != Error::none) {
        return Refusal{.error = error,
                       .cookie = request.cookie,
                       .discard = type == CommandType::write ? request.length : 0};
    }
    return Command{.type = type,
                   .cookie = request.cookie,
                   .offset = request.offset,
                   .length = request.length,
                   .no_hole = (request.flags & command_flag::no_hole) != 0,
                   .fast_zero = (request.flags & command_flag::fast_zero) != 0,
                   .one_extent = (request.flags & command_flag::req_one) != 0,
                   .one_chunk = (request.flags & command_flag::df) != 0};
}

}  // namespace gpunbd::protocol
