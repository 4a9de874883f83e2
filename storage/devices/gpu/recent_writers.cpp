#include "storage/devices/gpu/recent_writers.hpp"

#include <atomic>

namespace gpunbd::storage {

namespace {

constexpr std::chrono::milliseconds period(2);

struct Tally {
    std::uint32_t period = 0;  // the number of the period
    std::uint16_t present = 0;
    std::uint16_t before = 0;
};
static_assert(std::atomic<Tally>::is_always_lock_free);

std::atomic<Tally> tally{Tally{}};
thread_local std::uint32_t counted_in = 0;

}  // namespace

std::uint32_t count_writer(std::chrono::steady_clock::time_point now) {
    const auto number = static_cast<std::uint32_t>(now.time_since_epoch() / period);
    Tally seen = tally.load(std::memory_order_relaxed);
    while (counted_in != number) {
        Tally next{.period = number, .present = 1, .before = 0};
        if (seen.period == number) {
            next.present = static_cast<std::uint16_t>(seen.present + 1);
            next.before = seen.before;
        } else if (seen.period + 1 == number) {
            next.before = seen.present;
        }
        if (tally.compare_exchange_weak(seen, next, std::memory_order_relaxed)) {
            counted_in = number;
            seen = next;
        }
    }
    return seen.before;
}

}  // namespace gpunbd::storage
