#include "server/counters/longest_requests.hpp"

#include <algorithm>
#include <limits>
#include <thread>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

using std::chrono::microseconds;

std::uint32_t us(storage::TraceClock::duration duration) {
    const auto count = std::chrono::duration_cast<microseconds>(duration).count();
    return static_cast<std::uint32_t>(
        std::clamp<decltype(count)>(count, 0, std::numeric_limits<std::uint32_t>::max()));
}

std::uint64_t second_of(storage::TraceClock::time_point time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count());
}

// Stages are measured less exactly than the duration, which limits their sum.
LongRequest long_request(std::uint32_t type, storage::TraceClock::duration duration,
                         storage::TraceClock::duration queue, const storage::TransferWaits& waits) {
    LongRequest out{.type = type, .duration = us(duration)};
    std::uint32_t left = out.duration;
    const auto put = [&](WaitStage stage, std::uint32_t wait) {
        wait = std::min(wait, left);
        out.waits[static_cast<std::size_t>(stage)] = wait;
        left -= wait;
    };
    put(WaitStage::queue, us(queue));
    put(WaitStage::payload, us(waits.payload));
    put(WaitStage::memory, us(waits.memory));
    put(WaitStage::device, us(waits.device));
    put(WaitStage::socket, us(waits.socket));
    put(WaitStage::worker, left);
    return out;
}

}  // namespace

void LongestRequests::add_longest(std::uint32_t type, Clock::time_point received,
                                  const storage::TransferWaits& waits, Clock::time_point now) {
    GPUNBD_ASSERT(received <= now, "a request ends after it was received");
    const std::uint64_t second = second_of(now);
    GPUNBD_ASSERT(second >= newest_.load(std::memory_order_relaxed), "a steady clock goes forward");
    longest_ = now - received;
    end_of_second_ = Clock::time_point(std::chrono::seconds(second + 1));
    const LongRequest longest = long_request(type, longest_, waits.began - received, waits);
    Slot& slot = slots_[second % slots_.size()];
    const std::uint32_t version = slot.version.load(std::memory_order_relaxed);
    slot.version.store(version + 1, std::memory_order_relaxed);
    // Each store is a release, so that a reader that sees one also sees the odd version.
    slot.second.store(static_cast<std::uint32_t>(second), std::memory_order_release);
    slot.type.store(longest.type, std::memory_order_release);
    slot.duration.store(longest.duration, std::memory_order_release);
    for (std::size_t i = 0; i != wait_stages.size(); ++i) {
        slot.waits[i].store(longest.waits[i], std::memory_order_release);
    }
    slot.version.store(version + 2, std::memory_order_release);
    newest_.store(second, std::memory_order_release);
}

LongRequest LongestRequests::longest(Clock::time_point now, std::uint64_t first,
                                     std::uint64_t last) const {
    GPUNBD_ASSERT(first <= last && last < seconds, "older requests are not known");
    const std::uint64_t current = second_of(now);
    const std::uint64_t newest = newest_.load(std::memory_order_acquire);
    LongRequest out;
    if (newest + last < current) return out;  // most exports are idle
    for (std::uint64_t age = first; age <= last && age < current; ++age) {
        LongRequest each = read(current - age);
        each.age = static_cast<std::uint32_t>(age);
        if (each.duration > out.duration) out = each;
    }
    return out;
}

LongRequest LongestRequests::read(std::uint64_t second) const {
    const Slot& slot = slots_[second % slots_.size()];
    for (;; std::this_thread::yield()) {
        const std::uint32_t version = slot.version.load(std::memory_order_acquire);
        LongRequest out{.type = slot.type.load(std::memory_order_acquire),
                        .duration = slot.duration.load(std::memory_order_acquire)};
        for (std::size_t i = 0; i != wait_stages.size(); ++i) {
            out.waits[i] = slot.waits[i].load(std::memory_order_acquire);
        }
        const std::uint32_t number = slot.second.load(std::memory_order_acquire);
        if (version % 2 != 0 || slot.version.load(std::memory_order_relaxed) != version) continue;
        return number == static_cast<std::uint32_t>(second) ? out : LongRequest();
    }
}

}  // namespace gpunbd::server
