// Limits the log lines that clients can cause: ten a second after a burst. Omitted lines are
// counted, and the number is logged.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "storage/base/log_line.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

class LineLimit {
 public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::uint32_t burst = 200;
    static constexpr std::uint32_t per_second = 10;

    // Returns true if another line may be written. Any thread.
    bool take(Clock::time_point now = Clock::now());
    // Returns the number of omitted lines since the last call.
    std::uint64_t take_omitted();
    // Sets the function to call when the first line since take_omitted() is omitted; null: none.
    void when_omitted(std::function<void()> call);

 private:
    Mutex mutex_;
    std::uint32_t left_ GUARDED_BY(mutex_) = burst;
    Clock::time_point filled_ GUARDED_BY(mutex_);
    std::uint64_t omitted_ GUARDED_BY(mutex_) = 0;
    std::function<void()> call_ GUARDED_BY(mutex_);
};

// The limit of this process.
LineLimit& client_lines();
// Logs the number of lines that `limit` has omitted, if there are any.
void log_omitted_lines(LineLimit& limit);

// A log line that a client can cause at any rate, such as a line about a refused request.
class ClientLine : public storage::LogLine {
 public:
    explicit ClientLine(spdlog::level::level_enum level)
        : LogLine(level, spdlog::should_log(level) && client_lines().take()) {}
};

}  // namespace gpunbd::server
