#include "server/keeping/restart_policy.hpp"

#include <algorithm>

namespace gpunbd::server {

namespace {

using namespace std::chrono_literals;

constexpr auto first_delay = 100ms;
constexpr unsigned most_doublings = 6;  // 6.4 s

}  // namespace

std::optional<RestartPolicy::Clock::duration> RestartPolicy::after_death(Clock::time_point now,
                                                                         bool was_ready) {
    std::optional<Clock::time_point>& oldest = restarts_[next_];
    if (oldest && now - *oldest < within_) return std::nullopt;
    in_vain_ = was_ready ? 0 : in_vain_ + 1;
    Clock::duration delay{};
    if (in_vain_ > 1) delay = first_delay * (1U << std::min(in_vain_ - 2, most_doublings));
    oldest = now;
    next_ = (next_ + 1) % restarts_.size();
    return delay;
}

void RestartPolicy::forget() {
    std::fill(restarts_.begin(), restarts_.end(), std::nullopt);
    in_vain_ = 0;
}

}  // namespace gpunbd::server
