#include "server/supervisor/restart_policy.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

using namespace std::chrono_literals;

constexpr auto first_delay = 100ms;
// 6.4 s, well below the 60 s for which clients wait by default.
constexpr unsigned max_doublings = 6;
// 51.2 s: an operator has to correct the configuration first.
constexpr unsigned max_doublings_for_configuration = 9;

}  // namespace

std::optional<RestartPolicy::Clock::duration> RestartPolicy::after_death(Clock::time_point now,
                                                                         Death death) {
    GPUNBD_ASSERT(next_ < restarts_.size(), "at least one restart is allowed");
    std::optional<Clock::time_point>& oldest = restarts_[next_];
    const bool too_often = oldest && now - *oldest < within_;
    if (too_often && !death.keeps_contents) return std::nullopt;
    oldest = now;
    next_ = (next_ + 1) % restarts_.size();
    failures_ = death.was_ready && !too_often ? 0 : failures_ + 1;
    if (failures_ < 2) return Clock::duration{};
    const unsigned most = death.configuration ? max_doublings_for_configuration : max_doublings;
    return first_delay * (1U << std::min(failures_ - 2, most));
}

void RestartPolicy::forget() {
    std::fill(restarts_.begin(), restarts_.end(), std::nullopt);
    failures_ = 0;
}

}  // namespace gpunbd::server
