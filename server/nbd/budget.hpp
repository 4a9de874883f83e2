// Limits the memory that the requests of many connections hold. While it is exceeded, connections
// that need more wait in order.
#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <limits>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

class Budget {
 public:
    // Waits until the budget has room. It may be destroyed at any time.
    class Waiter : public boost::intrusive::list_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
     public:
        virtual void budget_has_room() = 0;

     protected:
        ~Waiter() = default;
    };

    // A burst begins when more than `burst` bytes are in use and ends at `end_of_burst` or fewer.
    static constexpr std::uint64_t burst = std::uint64_t{8} << 20;
    static constexpr std::uint64_t end_of_burst = burst / 8;

    explicit Budget(std::uint64_t max) : max_(max) {}  // bytes

    void charge(std::uint64_t bytes) {
        used_ += bytes;
        if (used_ > burst_at_) [[unlikely]]
            begin_burst();
    }
    void discharge(std::uint64_t bytes) {
        GPUNBD_ASSERT(bytes <= used_, "no more is discharged than was charged");
        used_ -= bytes;
        if (!waiters_.empty() && !exceeded()) wake();
    }
    bool exceeded() const { return used_ > max_; }
    std::uint64_t used() const { return used_; }
    // True while a burst has begun and end_burst() has not ended it. Called from any thread.
    bool had_burst() const { return had_burst_.load(std::memory_order_relaxed); }
    // Returns true, once, if a burst has begun and is over.
    bool end_burst();
    // The waiter is called once, even if it called wait() several times.
    void wait(Waiter& waiter) {
        if (!waiter.is_linked()) waiters_.push_back(waiter);
    }

 private:
    void wake();
    void begin_burst();

    const std::uint64_t max_;
    std::uint64_t used_ = 0;
    std::uint64_t burst_at_ = burst;
    std::atomic<bool> had_burst_{false};
    boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>> waiters_;
};

}  // namespace gpunbd::server
