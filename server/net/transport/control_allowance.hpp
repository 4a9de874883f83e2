// Limits the TLS records without payload that a peer may send: key updates, alerts, refused
// renegotiations, empty records. A key update costs the receiver as much as 16 KiB of payload and
// its sender next to nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gpunbd::server {

class ControlAllowance {
 public:
    using Clock = std::chrono::steady_clock;

    // In a row. Libraries update keys after 2^23 to 2^24 records, which carry at least 2^28 bytes
    // in NBD, or by a clock after minutes or hours.
    static constexpr std::uint64_t most = 32;
    static constexpr std::uint64_t payload = std::uint64_t{64}
                                             << 20;      // bytes that restore the full allowance
    static constexpr std::chrono::seconds interval{10};  // that restores one record

    explicit ControlAllowance(Clock::time_point now) : counted_until_(now) {}

    void received(std::uint64_t bytes) { payload_ += bytes; }
    // false: the peer has exceeded its allowance.
    bool take(Clock::time_point now) {
        constexpr std::uint64_t payload_for_one = payload / most;
        const auto intervals = (now - counted_until_) / interval;
        left_ = std::min(
            most, left_ + payload_ / payload_for_one + static_cast<std::uint64_t>(intervals));
        payload_ %= payload_for_one;
        counted_until_ += intervals * interval;
        if (left_ == 0) return false;
        --left_;
        return true;
    }

 private:
    std::uint64_t left_ = most;
    std::uint64_t payload_ = 0;  // bytes not yet converted into allowance
    Clock::time_point counted_until_;
};

}  // namespace gpunbd::server
