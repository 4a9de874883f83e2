#include "server/base/line_limit.hpp"

#include <algorithm>
#include <utility>

namespace gpunbd::server {

bool LineLimit::take(Clock::time_point now) {
    std::function<void()> call;
    {
        const Lock lock(mutex_);
        constexpr auto interval = std::chrono::nanoseconds(std::chrono::seconds(1)) / per_second;
        const auto more = std::min<std::int64_t>((now - filled_) / interval, burst);
        if (more > 0) {
            left_ = std::min(burst, left_ + static_cast<std::uint32_t>(more));
            filled_ = now;
        }
        if (left_ != 0) {
            --left_;
            return true;
        }
        if (omitted_++ == 0) call = call_;
    }
    if (call) call();
    return false;
}

std::uint64_t LineLimit::take_omitted() {
    const Lock lock(mutex_);
    return std::exchange(omitted_, 0);
}

void LineLimit::when_omitted(std::function<void()> call) {
    const Lock lock(mutex_);
    call_ = std::move(call);
}

LineLimit& client_lines() {
    static LineLimit limit;
    return limit;
}

void log_omitted_lines(LineLimit& limit) {
    const std::uint64_t count = limit.take_omitted();
    if (count == 0) return;
    spdlog::warn("{} line{} about clients {} left out: more than {} a second", count,
                 count == 1 ? "" : "s", count == 1 ? "was" : "were", LineLimit::per_second);
}

}  // namespace gpunbd::server
