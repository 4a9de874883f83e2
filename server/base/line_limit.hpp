// How many lines of the log clients may cause: ten a second, after a burst. What is left out is
// counted, and told.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

#include "storage/base/log_line.hpp"

namespace gpunbd::server {

class LineLimit {
 public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::uint32_t burst = 200;
    static constexpr std::uint32_t per_second = 10;

    // May another line be written? Any thread.
    bool take(Clock::time_point now = Clock::now());
    // How many lines it has refused since this was last asked.
    std::uint64_t take_left_out();
    // Called with the first line that is left out since then; null: no more.
    void when_left_out(std::function<void()> call);

 private:
    std::mutex mutex_;
    std::uint32_t left_ = burst;
    Clock::time_point filled_;
    std::uint64_t left_out_ = 0;
    std::function<void()> call_;
};

// The limit of this process.
LineLimit& client_lines();
// Says how many lines have been left out, if any.
void tell_left_out();

// A line that a client can cause as often as it likes: what it does, and what it is refused.
class ClientLine : public storage::LogLine {
 public:
    explicit ClientLine(spdlog::level::level_enum level)
        : LogLine(level, spdlog::should_log(level) && client_lines().take()) {}
};

}  // namespace gpunbd::server
