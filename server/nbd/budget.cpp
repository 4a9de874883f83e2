#include "server/nbd/budget.hpp"

namespace gpunbd::server {

void Budget::begin_burst() {
    burst_at_ = std::numeric_limits<std::uint64_t>::max();  // once is enough
    had_burst_.store(true, std::memory_order_relaxed);
}

bool Budget::end_burst() {
    if (!had_burst() || used_ > end_of_burst) return false;
    burst_at_ = burst;
    had_burst_.store(false, std::memory_order_relaxed);
    return true;
}

void Budget::wake() {
    // A waiter that waits again while it is called comes after the last of these.
    boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>> ready;
    ready.swap(waiters_);
    while (!ready.empty()) {
        Waiter& waiter = ready.front();
        ready.pop_front();
        waiter.budget_has_room();
    }
}

}  // namespace gpunbd::server
