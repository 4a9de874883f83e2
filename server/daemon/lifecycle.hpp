// The phase of the server, and how it ends. Only the main thread uses it.
#pragma once

#include <cstdint>
#include <exception>

namespace gpunbd::server {

enum class Phase : std::uint8_t {
    starting,          // the first exports are being made
    serving,           //
    handing_over,      // a successor is being started; until it is ready, serving can resume
    awaiting_swapoff,  // asked to end while the machine swaps to an export
    draining,          // answers the requests in flight, then ends
};

struct Lifecycle {
    Phase phase = Phase::starting;
    int exit_code = 0;
    std::exception_ptr failure = {};  // of the start

    bool draining() const { return phase == Phase::draining; }
    // Asked to end.
    bool ending() const { return phase >= Phase::awaiting_swapoff; }
};

}  // namespace gpunbd::server
