// Big-endian integers in byte buffers. The wire has no alignment and the host may have the other
// byte order, so these are the only places where a number and its bytes meet.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace gpunbd::protocol {

template <std::unsigned_integral T>
constexpr T to_from_big_endian(T value) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
    if constexpr (std::endian::native == std::endian::big) return value;
    if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(value));
    if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(value));
    if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(value));
}

// Reads sizeof(T) bytes; the caller has checked that they are there.
template <std::unsigned_integral T>
T load_be(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return to_from_big_endian(value);
}

// Writes sizeof(T) bytes and returns the position after them.
template <std::unsigned_integral T>
std::byte* store_be(std::byte* to, T value) {
    value = to_from_big_endian(value);
    std::memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

template <std::unsigned_integral T>
void append_be(std::vector<std::byte>& out, T value) {
    const std::size_t at = out.size();
    out.resize(at + sizeof value);
    store_be(out.data() + at, value);
}

}  // namespace gpunbd::protocol
