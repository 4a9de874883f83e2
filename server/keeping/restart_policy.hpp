// When a server that has died is started again: at once where it had served, later and later where
// it did not come to that, and not more often within a time than is allowed.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace gpunbd::server {

class RestartPolicy {
 public:
    using Clock = std::chrono::steady_clock;

    // At most `most` restarts, 1 or more, within any `within`.
    RestartPolicy(std::size_t most, Clock::duration within) : restarts_(most), within_(within) {}

    // A server has died, which had been ready or not: after how long the next is started. Unset:
    // not at all. Allocates nothing.
    std::optional<Clock::duration> after_death(Clock::time_point now, bool was_ready);

    // Somebody has changed what kept servers from serving.
    void forget();

 private:
    std::vector<std::optional<Clock::time_point>> restarts_;  // a ring, the oldest is next
    std::size_t next_ = 0;
    const Clock::duration within_;
    unsigned in_vain_ = 0;  // starts in a row of which no server was ready
};

}  // namespace gpunbd::server
