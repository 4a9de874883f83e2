#include "server/ublk/payload.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::server::ublk {

namespace {

constexpr std::array<std::byte, 64 * 1024> zeroes{};

}  // namespace

std::size_t Payload::receive(std::uint16_t tag, std::span<const iovec> lent, std::uint64_t offset) {
    GPUNBD_ASSERT(!lent.empty() && lent.front().iov_len != 0, "there is memory for the payload");
    if (receives_directly_) {
        const ssize_t got = io_.receive(tag, lent, offset);
        if (got > 0) return static_cast<std::size_t>(got);
    }
    const iovec part{.iov_base = buffer_.data(),
                     .iov_len = std::min(lent.front().iov_len, buffer_size)};
    const ssize_t got = io_.receive(tag, {&part, 1}, offset);
    if (got <= 0) return 0;
    receives_directly_ = false;
    const auto bytes = static_cast<std::size_t>(got);
    storage::store_streaming(static_cast<std::byte*>(lent.front().iov_base), buffer_.data(), bytes);
    return bytes;
}

bool Payload::send(std::uint16_t tag, const std::byte* data, std::size_t length,
                   std::uint64_t offset) {
    if (data != nullptr) {
        const std::span<const std::byte> all(data, length);
        if (sends_directly_ && send_all(tag, all, offset)) return true;
        return send_buffered(tag, all, offset);
    }
    while (length != 0) {
        const std::size_t part = std::min(length, zeroes.size());
        if (!send_all(tag, std::span(zeroes).first(part), offset)) return false;
        length -= part;
        offset += part;
    }
    return true;
}

bool Payload::send_all(std::uint16_t tag, std::span<const std::byte> data, std::uint64_t offset) {
    while (!data.empty()) {
        const ssize_t sent = io_.send(tag, data, offset);
        if (sent <= 0) return false;
        data = data.subspan(static_cast<std::size_t>(sent));
        offset += static_cast<std::uint64_t>(sent);
    }
    return true;
}

bool Payload::send_buffered(std::uint16_t tag, std::span<const std::byte> data,
                            std::uint64_t offset) {
    while (!data.empty()) {
        const auto part = data.first(std::min(data.size(), buffer_size));
        std::copy(part.begin(), part.end(), buffer_.begin());
        if (!send_all(tag, std::span(buffer_).first(part.size()), offset)) return false;
        sends_directly_ = false;
        data = data.subspan(part.size());
        offset += part.size();
    }
    return true;
}

}  // namespace gpunbd::server::ublk
