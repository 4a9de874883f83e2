#include "protocol/request.hpp"

#include "protocol/bytes.hpp"

namespace gpunbd::protocol {
namespace {

// All fields but the length, in which the formats differ.
Request decode_common(const std::byte* from) {
    return {.flags = load_be<std::uint16_t>(from + 4),
            .type = load_be<std::uint16_t>(from + 6),
            .cookie = load_be<std::uint64_t>(from + 8),
            .offset = load_be<std::uint64_t>(from + 16)};
}

std::byte* encode_common(std::byte* to, std::uint32_t magic, const Request& request) {
    to = store_be(to, magic);
    to = store_be(to, request.flags);
    to = store_be(to, request.type);
    to = store_be(to, request.cookie);
    return store_be(to, request.offset);
}

}  // namespace

std::optional<Request> decode_request(std::span<const std::byte, request_size> bytes) {
    const std::byte* from = bytes.data();
    if (load_be<std::uint32_t>(from) != request_magic) return std::nullopt;
    Request request = decode_common(from);
    request.length = load_be<std::uint32_t>(from + 24);
    return request;
}

std::optional<Request> decode_extended_request(
    std::span<const std::byte, extended_request_size> bytes) {
    const std::byte* from = bytes.data();
    if (load_be<std::uint32_t>(from) != extended_request_magic) return std::nullopt;
    Request request = decode_common(from);
    request.length = load_be<std::uint64_t>(from + 24);
    return request;
}

void encode_request(const Request& request, std::span<std::byte, request_size> out) {
    store_be(encode_common(out.data(), request_magic, request),
             static_cast<std::uint32_t>(request.length));
}

void encode_extended_request(const Request& request,
                             std::span<std::byte, extended_request_size> out) {
    store_be(encode_common(out.data(), extended_request_magic, request), request.length);
}

}  // namespace gpunbd::protocol
