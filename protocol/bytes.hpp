#pragma once

#include <boost/endian/conversion.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol/constants.hpp"

namespace gpunbd::protocol {

// The message formats of the transmission phase ("Transmission"), negotiated by the handshake for
// the whole connection.
enum class Headers : std::uint8_t {
    simple,      // compact requests and simple replies
    structured,  // compact requests; replies are chunks, or simple if nothing was read
    extended,    // extended requests, and every reply is extended chunks
};

constexpr std::size_t request_size_of(Headers headers) {
    return headers == Headers::extended ? extended_request_size : request_size;
}

constexpr std::size_t chunk_header_size_of(Headers headers) {
    return headers == Headers::extended ? extended_chunk_header_size : chunk_header_size;
}

// Big-endian integers in byte buffers. Buffers are not aligned.

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
