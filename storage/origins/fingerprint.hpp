#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace gpunbd::storage {

// A hash (FNV-1a) that is the same in each process and version, to compare what one of them has
// stored.
class Fingerprint {
 public:
    Fingerprint& add(std::string_view text) {
        for (const char each : text) add_byte(static_cast<unsigned char>(each));
        return add(text.size());
    }
    template <typename Number>
        requires std::is_integral_v<Number>
    Fingerprint& add(Number number) {
        const auto bits = static_cast<std::uint64_t>(number);
        for (int i = 0; i != 64; i += 8) add_byte(bits >> i & 0xff);
        return *this;
    }
    std::uint64_t value() const { return value_; }

 private:
    void add_byte(std::uint64_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }

    std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace gpunbd::storage
