// A token bucket with credit. A request that needs more tokens than the bucket has gets the time at
// which it is due. So waiting requests proceed in order of arrival on any thread, and no request
// has to wake another.
#pragma once

#include <chrono>
#include <cstdint>

#include "config/options.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

class TokenBucket {
 public:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;

    // Starts full. A `burst` of 0 means 10 ms, or a late timer would lose a part of the rate.
    TokenBucket(const config::Rates& rates, Time now);
    TokenBucket(const TokenBucket&) = delete;
    TokenBucket& operator=(const TokenBucket&) = delete;

    // Takes the tokens of one request of `bytes` and returns when it is due; not after `now` means
    // at once. In any time t, at most rate * t plus the burst passes; a larger request also passes,
    // and those behind it wait longer. Any thread.
    Time take(std::uint64_t bytes, Time now);
    // Returns the tokens of a request that will not execute.
    void give_back(std::uint64_t bytes);
    // The bucket is as full as a new one.
    bool full(Time now) const;

 private:
    // Times are nanoseconds since epoch_.
    struct Gauge {
        std::uint64_t per_second = 0;  // 0: no limit
        std::int64_t paid_until = 0;   // when all tokens taken have been refilled
        std::uint64_t rest = 0;        // its fraction, in 1/per_second ns

        std::int64_t take(std::uint64_t amount, std::int64_t now, std::int64_t burst);
        void give_back(std::uint64_t amount);
    };
    std::int64_t since_epoch(Time time) const;

    const Time epoch_;
    const std::int64_t burst_;  // ns
    mutable Mutex mutex_;
    Gauge bytes_ GUARDED_BY(mutex_);
    Gauge requests_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::server
