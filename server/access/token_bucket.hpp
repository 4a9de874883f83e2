// A rate: what is taken is made up for by the time that passes. Who takes more than there is gets
// it on credit and is told when, so that those who wait have their turns in the order in which they
// came, whatever thread they are on. Nobody has to be woken by another one.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "config/options.hpp"

namespace gpunbd::server {

class TokenBucket {
 public:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;

    // What may come at once is there from the beginning. `burst` of 0 is a hundredth of a second,
    // or a timer that is late would cost a part of the rate.
    TokenBucket(const config::Rates& rates, Time now);
    TokenBucket(const TokenBucket&) = delete;
    TokenBucket& operator=(const TokenBucket&) = delete;

    // For one request of so many bytes: when it may go. Not after `now`: at once. Over any time t,
    // no more goes than rate * t and what may come at once; but one request that is larger than
    // that goes, too, and those behind it wait the longer. Any thread.
    Time take(std::uint64_t bytes, Time now);
    // Of one that has not gone, and will not.
    void give_back(std::uint64_t bytes);
    // Nothing has been taken that has not been made up for: as good as a new one.
    bool full(Time now) const;

 private:
    // Times are nanoseconds since `epoch_`.
    struct Gauge {
        std::uint64_t per_second = 0;  // 0: no limit
        std::int64_t paid_until = 0;   // when all that was taken has been made up for
        std::uint64_t rest = 0;        // of that, parts of 1/per_second ns

        std::int64_t take(std::uint64_t amount, std::int64_t now, std::int64_t burst);
        void give_back(std::uint64_t amount);
    };
    std::int64_t since_epoch(Time time) const;

    const Time epoch_;
    const std::int64_t burst_;  // ns
    mutable std::mutex mutex_;
    Gauge bytes_;
    Gauge requests_;
};

}  // namespace gpunbd::server
