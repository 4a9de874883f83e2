#include "protocol/request.hpp"

#include "protocol/bytes.hpp"

namespace gpunbd::protocol {

std::optional<Request> decode_request(std::span<const std::byte, request_size> bytes) {
    const std::byte* from = bytes.data();
    if (load_be<std::uint32_t>(from) != request_magic) return std::nullopt;
    return Request{.flags = load_be<std::uint16_t>(from + 4),
                   .type = load_be<std::uint16_t>(from + 6),
                   .cookie = load_be<std::uint64_t>(from + 8),
                   .offset = load_be<std::uint64_t>(from + 16),
                   .length = load_be<std::uint32_t>(from + 24)};
}

void encode_request(const Request& request, std::span<std::byte, request_size> out) {
    std::byte* to = store_be(out.data(), request_magic);
    to = store_be(to, request.flags);
    to = store_be(to, request.type);
    to = store_be(to, request.cookie);
    to = store_be(to, request.offset);
    store_be(to, request.length);
}

}  // namespace gpunbd::protocol
