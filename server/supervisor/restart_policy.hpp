// When a server that has died is started again: at once where it had served, after growing pauses
// where it did not come to that or dies too often.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace gpunbd::server {

class RestartPolicy {
 public:
    using Clock = std::chrono::steady_clock;

    // More than `most` restarts, 1 or more, within any `within` are too often.
    RestartPolicy(std::size_t most, Clock::duration within) : restarts_(most), within_(within) {}

    struct Death {
        bool was_ready = false;      // the server that has died
        bool must_go_on = false;     // else a server that dies too often is not started again
        bool configuration = false;  // it does not accept its configuration
    };
    // After how long the next server is started. Unset: not at all. Allocates nothing.
    std::optional<Clock::duration> after_death(Clock::time_point now, Death death);

    // Whatever kept servers from serving may have been corrected.
    void forget();

 private:
    std::vector<std::optional<Clock::time_point>> restarts_;  // a ring, the oldest is next
    std::size_t next_ = 0;
    const Clock::duration within_;
    unsigned in_vain_ = 0;  // servers in a row that were not ready, or died too soon
};

}  // namespace gpunbd::server
