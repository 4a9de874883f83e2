// The phase of the server and the reason for its end. Only the main thread uses it.
#pragma once

#include <cstdint>
#include <exception>

#include "server/admin/model/admin_backend.hpp"

namespace gpunbd::server {

enum class Phase : std::uint8_t {
    starting,          // the first exports are being made
    serving,           //
    handing_over,      // a successor is being started; serving can resume until it is ready
    awaiting_swapoff,  // termination was requested while the machine uses an export: as swap, by
                       // ublk
    draining,          // answers the requests in flight, then ends
};

struct Lifecycle {
    Phase phase = Phase::starting;
    int exit_code = 0;
    std::exception_ptr failure = {};  // of the start
    bool handed_over = false;         // it drains because a successor serves

    bool draining() const { return phase == Phase::draining; }
    // No change begins now: another process may serve the contents.
    bool refuses_changes() const { return phase == Phase::handing_over || draining(); }
    // The reason for that.
    Outcome refusal() const {
        const bool replaced = phase == Phase::handing_over || handed_over;
        return replaced ? outcome_of_replacement() : outcome_of_ending();
    }
    // Termination was requested.
    bool ending() const { return phase >= Phase::awaiting_swapoff; }
};

}  // namespace gpunbd::server
