#include "protocol/request.hpp"

#include "protocol/bytes.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::protocol {
namespace {

std::byte* encode_common(std::byte* to, std::uint32_t magic, const Request& request) {
    to = store_be(to, magic);
    to = store_be(to, request.flags);
    to = store_be(to, request.type);
    to = store_be(to, request.cookie);
    return store_be(to, request.offset);
}

}  // namespace

std::optional<Request> decode_request(std::span<const std::byte> bytes, Headers headers) {
    GPUNBD_ASSERT(bytes.size() >= request_size_of(headers),
                  "a request is decoded when its header has arrived");
    const std::byte* const from = bytes.data();
    const bool extended = headers == Headers::extended;
    const std::uint32_t magic = extended ? extended_request_magic : request_magic;
    if (load_be<std::uint32_t>(from) != magic) return std::nullopt;
    return Request{
        .flags = load_be<std::uint16_t>(from + 4),
        .type = load_be<std::uint16_t>(from + 6),
        .cookie = load_be<std::uint64_t>(from + 8),
        .offset = load_be<std::uint64_t>(from + 16),
        .length = extended ? load_be<std::uint64_t>(from + 24) : load_be<std::uint32_t>(from + 24)};
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
