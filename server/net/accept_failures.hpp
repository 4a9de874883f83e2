// Limits the log lines about failures of accept(), which is called again and again until the system
// has descriptors or memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::server {

class AcceptFailures {
 public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::minutes interval{1};  // between two lines

    // Counts a failure with that errno. Returns the line to log: the cause, the number of failures
    // since the last line, and the remedy; nullopt: the last line is recent.
    std::optional<std::string> text(int error, Clock::time_point now);

 private:
    std::optional<Clock::time_point> logged_at_;
    std::uint64_t omitted_ = 0;
};

}  // namespace gpunbd::server
