// Decides when a dead server is restarted: at once if it had served, after increasing delays if it
// had not or if it dies too often.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace gpunbd::server {

class RestartPolicy {
 public:
    using Clock = std::chrono::steady_clock;

    // At most `most` restarts, 1 or more, within any period of `within`.
    RestartPolicy(std::size_t most, Clock::duration within) : restarts_(most), within_(within) {}

    struct Death {
        bool was_ready = false;       // the dead server had sent READY=1
        bool keeps_contents = false;  // restart it without a limit
        bool configuration = false;   // it rejected its configuration
    };
    // Returns the delay until the restart. Unset: no restart. Allocates nothing.
    std::optional<Clock::duration> after_death(Clock::time_point now, Death death);

    // Resets the delays: the cause of the failures may have been fixed.
    void forget();

 private:
    std::vector<std::optional<Clock::time_point>> restarts_;  // a ring; next_ is the oldest
    std::size_t next_ = 0;
    const Clock::duration within_;
    unsigned failures_ = 0;  // consecutive servers that were not ready or died too soon
};

}  // namespace gpunbd::server
