// The phase of the server and the reason for its end. Only the main thread uses it.
#pragma once

#include <cstdint>
#include <exception>

#include "server/admin/model/admin_backend.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

enum class Phase : std::uint8_t {
    starting,          // the first exports are being made
    serving,           //
    handing_over,      // a successor is being started; serving can resume until it is ready
    awaiting_swapoff,  // termination was requested while the machine uses an export: as swap, by
                       // ublk
    draining,          // answers the requests in flight, then ends
};

// The valid transitions. A hand-over that fails or is cancelled ends in `serving`.
constexpr bool may_follow(Phase from, Phase to) {
    using enum Phase;
    switch (from) {
        case starting:
            return to == serving || to == draining;
        case serving:
            return to == handing_over || to == awaiting_swapoff || to == draining;
        case handing_over:
            return to == serving || to == draining;
        case awaiting_swapoff:  // again for other users of an export
            return to == awaiting_swapoff || to == draining;
        case draining:
            return false;
    }
    return false;
}

class Lifecycle {
 public:
    Phase phase() const { return phase_; }
    void enter(Phase next) {
        GPUNBD_ASSERT(may_follow(phase_, next), "a server follows its phases and drains once");
        phase_ = next;
    }

    int exit_code = 0;
    std::exception_ptr failure = {};  // of the start
    bool handed_over = false;         // it drains because a successor serves

    bool draining() const { return phase_ == Phase::draining; }
    // No change begins now: another process may serve the contents.
    bool refuses_changes() const { return phase_ == Phase::handing_over || draining(); }
    // The reason for that.
    Outcome refusal() const {
        const bool replaced = phase_ == Phase::handing_over || handed_over;
        return replaced ? outcome_of_replacement() : outcome_of_ending();
    }
    // Termination was requested.
    bool ending() const { return phase_ >= Phase::awaiting_swapoff; }

 private:
    Phase phase_ = Phase::starting;
};

}  // namespace gpunbd::server
