#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "protocol/gate.hpp"
#include "server/exports/export_use.hpp"
#include "server/nbd/command_cost.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

// Limits the memory that the requests of many connections hold. While it is exceeded, connections
// that need more wait in order.
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

// Holds one request of a connection back until the rates of its export admit it. Requests behind it
// stay in the socket.
class Throttle : public std::enable_shared_from_this<Throttle> {
 public:
    // The waiter owns the throttle and is called when to check due() again.
    Throttle(boost::asio::io_context& io, Budget::Waiter& waiter) : waiter_(waiter), timer_(io) {}

    // A request that is held back is admitted by the new limits.
    void change(RateLimits limits);
    // true: the request is kept.
    bool keeps(const protocol::Validated& request);
    bool holding() const { return held_.has_value(); }
    // The request that is kept may execute now.
    bool due();
    protocol::Validated release();
    // Returns the request before it is due, and returns its tokens to the buckets.
    protocol::Validated withdraw();

 private:
    using Time = TokenBucket::Time;

    void give_back();
    void check_later();

    Budget::Waiter& waiter_;
    boost::asio::steady_timer timer_;
    bool waiting_ = false;
    RateLimits limits_;
    std::optional<protocol::Validated> held_;
    std::uint64_t bytes_ = 0;    // rate_cost() of held_
    std::uint32_t charged_ = 0;  // limits that have admitted held_
    Time due_at_ = Time::min();  // according to those
};

// Decides whether a connection may take another request now. Payload and work of its requests count
// against a limit of the connection, their memory against the budget of its worker.
class Admission {
 public:
    // `max_in_flight`: bytes of payload and work of unanswered requests; see CommandCost.
    Admission(std::uint64_t max_in_flight, Budget& budget, Budget::Waiter& waiter)
        : max_in_flight_(max_in_flight), budget_(budget), waiter_(waiter) {}
    ~Admission() { budget_.discharge(memory_); }
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;

    void enter(const CommandCost& cost) {
        ++requests_;
        in_flight_ += cost.in_flight;
        memory_ += cost.memory;
        budget_.charge(cost.memory);
    }
    // A request has ended. true: requests may be taken again.
    bool leave(const CommandCost& cost) {
        const bool was_over = in_flight_ > max_in_flight_;
        GPUNBD_ASSERT(requests_ != 0 && in_flight_ >= cost.in_flight,
                      "a request leaves once, with the cost with which it has entered");
        GPUNBD_ASSERT(memory_ - held_ - buffered_ >= cost.memory,
                      "requests hold the memory that they charged");
        --requests_;
        in_flight_ -= cost.in_flight;
        memory_ -= cost.memory;
        budget_.discharge(cost.memory);
        return was_over || requests_ == 0;
    }
    // Bytes of buffers and queues of the connection itself.
    void hold_memory(std::uint64_t bytes) {
        if (bytes != held_) change_held_memory(bytes);
    }

    // Payload that waits for its page. False: the connection or its worker holds too much.
    bool buffer(std::uint64_t bytes) {
        if (bytes > max_buffered - buffered_ || budget_.exceeded()) return false;
        buffered_ += bytes;
        memory_ += bytes;
        budget_.charge(bytes);
        return true;
    }
    void unbuffer(std::uint64_t bytes) {
        GPUNBD_ASSERT(bytes <= buffered_, "no more is returned than was buffered");
        buffered_ -= bytes;
        memory_ -= bytes;
        budget_.discharge(bytes);
    }

    // One request may always be taken. If the worker's budget is exceeded, the waiter is called
    // when there is room.
    bool may_take() {
        if (requests_ == 0) return true;
        if (in_flight_ > max_in_flight_) return false;
        if (!budget_.exceeded()) return true;
        budget_.wait(waiter_);
        return false;
    }

    // The rates of the export; none at first. A request that is held back is admitted by the new
    // ones.
    void limit_rates(boost::asio::io_context& io, RateLimits limits);
    // true: the request is kept until the rates admit it. The waiter is called when to check due().
    bool keeps(const protocol::Validated& request) {
        return throttle_ != nullptr && throttle_->keeps(request);
    }
    bool holding() const { return throttle_ != nullptr && throttle_->holding(); }
    // The request that is kept may execute now: release() it.
    bool due() {
        GPUNBD_ASSERT(holding(), "only a request that is kept becomes due");
        return throttle_->due();
    }
    protocol::Validated release() {
        GPUNBD_ASSERT(holding(), "only a request that is kept is released");
        return throttle_->release();
    }
    // Returns the request before it is due, to execute or drop it.
    protocol::Validated withdraw() {
        GPUNBD_ASSERT(holding(), "only a request that is kept is withdrawn");
        return throttle_->withdraw();
    }

 private:
    static constexpr std::uint64_t max_buffered = std::uint64_t{2} << 20;  // bytes

    void change_held_memory(std::uint64_t bytes);

    const std::uint64_t max_in_flight_;
    Budget& budget_;
    Budget::Waiter& waiter_;
    std::uint64_t requests_ = 0;
    std::uint64_t in_flight_ = 0;         // bytes
    std::uint64_t held_ = 0;              // bytes, of memory_
    std::uint64_t buffered_ = 0;          // bytes, of memory_
    std::uint64_t memory_ = 0;            // bytes charged to the budget
    std::shared_ptr<Throttle> throttle_;  // null: there are no rates
};

}  // namespace gpunbd::server
