// Holds one request of a connection back until the rates of its export let it go. Those behind it
// stay where they are, in the socket.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <optional>

#include "protocol/gate.hpp"
#include "server/access/export_use.hpp"
#include "server/connection/budget.hpp"

namespace gpunbd::server {

class Throttle : public std::enable_shared_from_this<Throttle> {
 public:
    // The waiter, who owns it, is told when it is time to ask due() again.
    Throttle(boost::asio::io_context& io, Budget::Waiter& waiter) : waiter_(waiter), timer_(io) {}

    // With a request held back: it asks anew.
    void change(RateLimits limits);
    // true: the request has to wait, and is kept.
    bool keeps(const protocol::Validated& request);
    bool holding() const { return held_.has_value(); }
    // May the request that is kept go now?
    bool due();
    protocol::Validated release();
    // It goes without its turn, or not at all: what it had taken is given back.
    protocol::Validated withdraw();

 private:
    using Time = TokenBucket::Time;

    void give_back();
    void look_later();

    Budget::Waiter& waiter_;
    boost::asio::steady_timer timer_;
    bool waiting_ = false;
    RateLimits limits_;
    std::optional<protocol::Validated> held_;
    std::uint64_t bytes_ = 0;  // that it costs
    std::uint32_t asked_ = 0;  // of the limits
    Time goes_ = Time::min();  // by those
};

}  // namespace gpunbd::server
