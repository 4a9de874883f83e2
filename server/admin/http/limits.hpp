// What clients of the admin endpoint may take of it at most.
#pragma once

#include <chrono>
#include <cstddef>

namespace gpunbd::server::admin {

struct Limits {
    std::size_t connections = 32;  // at once; whoever waits longest for a request makes room
    std::size_t streams = 8;       // of those, that ticks are sent to
    std::size_t header = 8 << 10;  // bytes of a request
    std::size_t body = 16 << 10;   // bytes of a request
    std::chrono::milliseconds request{10'000};  // until all of it has come, and for its answer
    std::chrono::milliseconds idle{60'000};     // between two requests, and for a tick to be read
};

}  // namespace gpunbd::server::admin
