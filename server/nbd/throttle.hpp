// Holds one request of a connection back until the rates of its export admit it. Requests behind it
// stay in the socket.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <optional>

#include "protocol/gate.hpp"
#include "server/exports/export_use.hpp"
#include "server/nbd/budget.hpp"

namespace gpunbd::server {

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

}  // namespace gpunbd::server
