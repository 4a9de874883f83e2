// Bytes for tests: conversions from and to hexadecimal, so that failures print readable text, and
// copies on heap buffers of the exact size, so that sanitizers detect accesses beyond either end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::protocol::test {

using Bytes = std::vector<std::byte>;

// Converts pairs of hexadecimal digits. Spaces are ignored.
inline Bytes hex(std::string_view text) {
    const auto digit = [](char c) -> unsigned {
        if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
        if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
        throw std::invalid_argument("not a hex digit");
    };
    Bytes bytes;
    for (std::size_t i = 0; i < text.size();) {
        if (text[i] == ' ') {
            ++i;
            continue;
        }
        bytes.push_back(static_cast<std::byte>(digit(text.at(i)) << 4 | digit(text.at(i + 1))));
        i += 2;
    }
    return bytes;
}

inline std::string to_hex(std::span<const std::byte> bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const std::byte byte : bytes) {
        text += digits[std::to_integer<std::size_t>(byte) >> 4];
        text += digits[std::to_integer<std::size_t>(byte) & 15];
    }
    return text;
}

// Removes the spaces, for comparison with to_hex.
inline std::string squeezed(std::string_view text) { return to_hex(hex(text)); }

inline Bytes text_bytes(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

inline Bytes joined(std::initializer_list<Bytes> parts) {
    Bytes all;
    for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}

// Encodes a number in big-endian order, independently of the code under test.
inline Bytes be(std::uint64_t value, int size) {
    Bytes bytes;
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8)
        bytes.push_back(static_cast<std::byte>(value >> shift & 0xff));
    return bytes;
}
inline Bytes be16(std::uint64_t value) { return be(value, 2); }
inline Bytes be32(std::uint64_t value) { return be(value, 4); }
inline Bytes be64(std::uint64_t value) { return be(value, 8); }

class ExactBuffer {
 public:
    explicit ExactBuffer(std::span<const std::byte> bytes)
        : size_(bytes.size()), data_(new std::byte[bytes.size()]) {
        for (std::size_t i = 0; i < size_; ++i) data_[i] = bytes[i];
    }
    std::span<std::byte> span() { return {data_.get(), size_}; }
    std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
    std::size_t size_;
    std::unique_ptr<std::byte[]> data_;
};

}  // namespace gpunbd::protocol::test
