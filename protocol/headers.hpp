// The message formats of the transmission phase ("Transmission"), negotiated by the handshake for
// the whole connection.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/constants.hpp"

namespace gpunbd::protocol {

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

}  // namespace gpunbd::protocol
