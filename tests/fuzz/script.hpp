// Reads a fuzzer's input as numbers and bytes. Reads past its end return zeroes, so that every
// input is a valid script.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gpunbd::fuzz {

class Script {
 public:
    Script(const std::uint8_t* data, std::size_t size)
        : rest_(std::as_bytes(std::span(data, size))) {}

    bool over() const { return rest_.empty(); }
    std::span<const std::byte> bytes(std::size_t maximum) {
        const auto taken = rest_.first(std::min(maximum, rest_.size()));
        rest_ = rest_.subspan(taken.size());
        return taken;
    }
    std::uint32_t byte() {
        const auto one = bytes(1);
        return one.empty() ? 0 : std::to_integer<std::uint32_t>(one[0]);
    }
    std::uint32_t word() {
        const std::uint32_t high = byte();
        return high << 8 | byte();
    }

 private:
    std::span<const std::byte> rest_;
};

}  // namespace gpunbd::fuzz
