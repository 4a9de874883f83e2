// The longest request of each second of the last minute, of one export on one worker, and where it
// waited. One thread adds requests, any thread reads, without locks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "storage/base/transfer_waits.hpp"

namespace gpunbd::server {

// What a request can wait for, in the order of its life.
enum class WaitStage : std::uint8_t {
    queue,    // behind other requests of its connection, or for the limits of rates
    payload,  // WRITE: for its payload
    memory,   // for pages and for staging memory
    device,   // for copies
    socket,   // READ of several pieces: until earlier ones were sent
    worker,   // the rest: for turns, and during turns
};
inline constexpr std::array<std::string_view, 6> wait_stages{"queue",  "payload", "memory",
                                                             "device", "socket",  "worker"};

// From the receipt of a request until its reply is ready. Durations are in microseconds.
struct LongRequest {
    std::uint32_t type = 0;  // its index in ExportCounters::by_type
    std::uint32_t duration = 0;
    std::uint32_t age = 0;  // whole seconds since the second in which it ended
    std::array<std::uint32_t, wait_stages.size()> waits{};  // by stage; their sum is the duration
};

class LongestRequests {
 public:
    using Clock = storage::TraceClock;
    static constexpr std::uint64_t seconds = 60;  // that are known

    // A request that ends now. `now` does not decrease.
    void add(std::uint32_t type, Clock::time_point received, const storage::TransferWaits& waits,
             Clock::time_point now) {
        if (now - received <= longest_ && now < end_of_second_) [[likely]]
            return;
        add_longest(type, received, waits, now);
    }
    // Any thread: the longest request that ended in one of the seconds from `first` to `last`
    // before the current one, which is 0; `last` is less than `seconds`. Its duration is 0 if there
    // was none.
    LongRequest longest(Clock::time_point now, std::uint64_t first, std::uint64_t last) const;

 private:
    // Readers discard what they have read if `version` has changed or is odd.
    struct Slot {
        std::atomic<std::uint32_t> version{0};
        std::atomic<std::uint32_t> second{0};  // the low bits of its number
        std::atomic<std::uint32_t> type{0};
        std::atomic<std::uint32_t> duration{0};
        std::array<std::atomic<std::uint32_t>, wait_stages.size()> waits{};
    };

    LongRequest read(std::uint64_t second) const;
    void add_longest(std::uint32_t type, Clock::time_point received,
                     const storage::TransferWaits& waits, Clock::time_point now);

    Clock::duration longest_{};  // of the current second
    Clock::time_point end_of_second_;
    std::atomic<std::uint64_t> newest_{0};  // the second of the last request that was added
    std::array<Slot, seconds + 4> slots_;   // by the number of the second
};

}  // namespace gpunbd::server
