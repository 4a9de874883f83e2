// A request header in host byte order ("Request message").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"

namespace gpunbd::protocol {

struct Request {
    std::uint16_t flags = 0;
    std::uint16_t type = 0;  // it may not be a CommandType
    std::uint64_t cookie = 0;
    std::uint64_t offset = 0;  // bytes
    std::uint64_t length = 0;  // bytes; 32 bits in a compact request

    bool operator==(const Request&) const = default;
};

// `bytes`: at least request_size_of(headers). Returns nothing if the magic is wrong or that of the
// other format; the connection must be closed then.
std::optional<Request> decode_request(std::span<const std::byte> bytes, Headers headers);

// The inverse, for clients and tests. A compact request has the lower 32 bits of the length.
void encode_request(const Request& request, std::span<std::byte, request_size> out);
void encode_extended_request(const Request& request,
                             std::span<std::byte, extended_request_size> out);

}  // namespace gpunbd::protocol
