// A connection between two requests, as one process hands it to another: all that is needed to
// continue with its socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/negotiation.hpp"

namespace gpunbd::server {

struct ConnectionState {
    std::string listener;  // Peer::listener
    protocol::NegotiatedOptions negotiated = {};
    // A WRITE of which the first `arrived` bytes are written. length 0: there is none.
    struct HalfWrite {
        std::uint64_t cookie = 0;
        std::uint64_t offset = 0;   // bytes
        std::uint64_t length = 0;   // bytes
        std::uint64_t arrived = 0;  // bytes, fewer than length
        bool fua = false;
        bool operator==(const HalfWrite&) const = default;
    };
    HalfWrite half_write = {};
    std::uint64_t discarded = 0;           // payload bytes to drop first
    std::vector<std::byte> received = {};  // but not consumed
    // For the log.
    std::uint64_t requests = 0;
    std::uint64_t read = 0;          // bytes
    std::uint64_t written = 0;       // bytes
    std::uint64_t errors = 0;        // requests answered with an error
    std::uint64_t milliseconds = 0;  // since the connection was accepted
};

}  // namespace gpunbd::server
