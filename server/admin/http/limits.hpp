// The most that clients of the admin endpoint may use.
#pragma once

#include <chrono>
#include <cstddef>

namespace gpunbd::server::admin {

struct Limits {
    // Maximum number of simultaneous connections of each listener.
    std::size_t connections = 32;
    std::size_t connections_of_client = 24;
    std::size_t streams = 8;  // a subset of the connections
    std::size_t streams_of_client = 6;
    std::size_t header = 8 << 10;               // bytes of a request
    std::size_t body = 16 << 10;                // bytes of a request
    std::chrono::milliseconds request{10'000};  // to receive a request, and to send its response
    std::chrono::milliseconds idle{60'000};     // between two requests, and to send a tick
    std::chrono::milliseconds outcome{30'000};  // for an operation of the server
    std::chrono::milliseconds long_outcome{3'600'000};  // for one that takes long
};

}  // namespace gpunbd::server::admin
