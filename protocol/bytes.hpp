// Big-endian integers in byte buffers. Buffers are not aligned.
#pragma once

#include <boost/endian/conversion.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpunbd::protocol {

// Reads sizeof(T) bytes, which must exist.
template <std::unsigned_integral T>
T load_be(const std::byte* from) {
    return boost::endian::endian_load<T, sizeof(T), boost::endian::order::big>(
        reinterpret_cast<const unsigned char*>(from));
}

// Writes sizeof(T) bytes and returns the position after them.
template <std::unsigned_integral T>
std::byte* store_be(std::byte* to, T value) {
    boost::endian::endian_store<T, sizeof(T), boost::endian::order::big>(
        reinterpret_cast<unsigned char*>(to), value);
    return to + sizeof value;
}

template <std::unsigned_integral T>
void append_be(std::vector<std::byte>& out, T value) {
    const std::size_t at = out.size();
    out.resize(at + sizeof value);
    store_be(out.data() + at, value);
}

}  // namespace gpunbd::protocol
