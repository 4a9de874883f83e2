#include "server/supervisor/restart_policy.hpp"

#include <algorithm>

namespace gpunbd::server {

namespace {

using namespace std::chrono_literals;

constexpr auto first_delay = 100ms;
// 6.4 s: well below the 60 s for which clients wait by default.
constexpr unsigned most_doublings = 6;
// 51.2 s: the configuration has to be changed first.
constexpr unsigned most_doublings_for_configuration = 9;

}  // namespace

std::optional<RestartPolicy::Clock::duration> RestartPolicy::after_death(Clock::time_point now,
                                                                         Death death) {
    std::optional<Clock::time_point>& oldest = restarts_[next_];
    const bool too_often = oldest && now - *oldest < within_;
    if (too_often && !death.must_go_on) return std::nullopt;
    oldest = now;
    next_ = (next_ + 1) % restarts_.size();
    in_vain_ = death.was_ready && !too_often ? 0 : in_vain_ + 1;
    if (in_vain_ < 2) return Clock::duration{};
    const unsigned most = death.configuration ? most_doublings_for_configuration : most_doublings;
    return first_delay * (1U << std::min(in_vain_ - 2, most));
}

void RestartPolicy::forget() {
    std::fill(restarts_.begin(), restarts_.end(), std::nullopt);
    in_vain_ = 0;
}

}  // namespace gpunbd::server
