// Detects kernels of one channel that have to wait for another program, by the time since one has
// last ended.
#pragma once

#include <cstdint>

#include "storage/devices/competition.hpp"

namespace gpunbd::storage {

class SlowKernels {
 public:
    // A kernel has ended.
    void ended() { ++ends_; }
    // Called from time to time; `idle`: no copy is in flight. Returns true once for each time that
    // no kernel has ended for Competition::slow.
    bool seen(bool idle, Competition::Clock::time_point now) {
        if (idle || ends_ != ends_seen_) {
            ends_seen_ = ends_;
            no_end_since_ = now;
            return false;
        }
        if (now - no_end_since_ < Competition::slow) return false;
        no_end_since_ = now;
        return true;
    }

 private:
    std::uint64_t ends_ = 0;
    std::uint64_t ends_seen_ = 0;
    Competition::Clock::time_point no_end_since_{};
};

}  // namespace gpunbd::storage
