// Reads and writes consecutive numbers and texts in the bodies of messages between servers. Reading
// beyond the end gives zeroes and makes complete() false.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/bytes.hpp"

namespace gpunbd::server {

class FieldWriter {
 public:
    void number(std::unsigned_integral auto value) { protocol::append_be(bytes_, value); }
    void text(std::string_view text) {
        number(static_cast<std::uint32_t>(text.size()));
        const auto bytes = std::as_bytes(std::span(text));
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    std::vector<std::byte> take() { return std::move(bytes_); }

 private:
    std::vector<std::byte> bytes_;
};

class FieldReader {
 public:
    explicit FieldReader(std::span<const std::byte> bytes) : left_(bytes) {}

    template <std::unsigned_integral T>
    T number() {
        const auto bytes = take(sizeof(T));
        return bytes.empty() ? T{0} : protocol::load_be<T>(bytes.data());
    }
    std::string text() {
        const auto bytes = take(number<std::uint32_t>());
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    // Returns true if all fields were present and nothing follows.
    bool complete() const { return whole_ && left_.empty(); }

 private:
    std::span<const std::byte> take(std::size_t size) {
        if (!whole_ || size > left_.size()) {
            whole_ = false;
            return {};
        }
        const auto taken = left_.first(size);
        left_ = left_.subspan(size);
        return taken;
    }

    std::span<const std::byte> left_;
    bool whole_ = true;
};

}  // namespace gpunbd::server
