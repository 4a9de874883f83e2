// A connection between two requests, as one process hands it to another: all that has to be known
// to go on with its socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/negotiation.hpp"

namespace gpunbd::server {

struct ConnectionState {
    std::string listener;  // Peer::listener
    protocol::NegotiatedOptions negotiated = {};
    // A WRITE whose payload has come in part, and is in its place so far; no length: there is none.
    struct HalfWrite {
        std::uint64_t cookie = 0;
        std::uint64_t offset = 0;   // bytes
        std::uint64_t length = 0;   // bytes
        std::uint64_t arrived = 0;  // bytes, fewer than that
        bool operator==(const HalfWrite&) const = default;
    };
    HalfWrite half_write = {};
    std::uint64_t discarded = 0;           // payload bytes of nobody that come first
    std::vector<std::byte> received = {};  // and is not read yet
    // For the log.
    std::uint64_t requests = 0;
    std::uint64_t read = 0;          // bytes
    std::uint64_t written = 0;       // bytes
    std::uint64_t milliseconds = 0;  // since it began
};

}  // namespace gpunbd::server
