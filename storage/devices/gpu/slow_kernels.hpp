// Do the kernels of one channel wait for somebody? Told by how long none of them has ended.
#pragma once

#include <cstdint>

#include "storage/devices/gpu/competition.hpp"

namespace gpunbd::storage {

class SlowKernels {
 public:
    // One of them has.
    void ended() { ++ends_; }
    // Looked at now and then; `idle`: nothing is in flight. true: none has ended for
    // Competition::slow, which is told once for each such time.
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
