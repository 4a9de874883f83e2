// Measures the data that a connection transfers, for the limit on clients that hold memory and
// transfer too little, and for the log.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "server/counters/connection_counters.hpp"

namespace gpunbd::server {

class ProgressMeter {
 public:
    void moved(std::size_t bytes) { moved_ += bytes; }
    std::uint64_t moved() const { return moved_; }  // bytes received and sent
    // The number of calls in a row that found fewer than `min` bytes moved since the one before.
    std::uint32_t checks_without(std::uint64_t min) {
        const bool progress = moved_ - std::exchange(moved_at_check_, moved_) >= min;
        return checks_without_ = progress ? 0 : checks_without_ + 1;
    }

    // The socket is full, or has accepted everything. `since`: ConnectionCounters::unsent_since.
    void update_stall(storage::Counter& since, bool progress, bool unsent) {
        if (since.value() != 0 && progress) {
            longest_stall_ = std::max(longest_stall_, Stall::now() - since.value());
            since.set(0);
        }
        if (unsent && since.value() == 0) since.set(Stall::now());
    }
    // The longest time for which the client did not read waiting replies.
    std::chrono::nanoseconds longest_stall(const storage::Counter& since) const {
        const std::uint64_t last = since.value() == 0 ? 0 : Stall::now() - since.value();
        return std::chrono::nanoseconds(std::max(longest_stall_, last));
    }

 private:
    std::uint64_t moved_ = 0;
    std::uint64_t moved_at_check_ = 0;
    std::uint32_t checks_without_ = 0;
    std::uint64_t longest_stall_ = 0;  // ns, of the ended stalls
};

}  // namespace gpunbd::server
