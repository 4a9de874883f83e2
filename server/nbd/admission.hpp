// Decides whether a connection may take another request now. Payload and work of its requests count
// against a limit of the connection, their memory against the budget of its worker.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>

#include "protocol/gate.hpp"
#include "server/nbd/budget.hpp"
#include "server/nbd/throttle.hpp"

namespace gpunbd::server {

class Admission {
 public:
    // `max_in_flight`: bytes of payload and work of unanswered requests; see in_flight_cost().
    Admission(std::uint64_t max_in_flight, Budget& budget, Budget::Waiter& waiter)
        : max_in_flight_(max_in_flight), budget_(budget), waiter_(waiter) {}
    ~Admission() { budget_.discharge(memory_); }
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;

    // A request starts. `memory`: bytes that it takes while it lives; see memory_cost().
    void enter(const protocol::Command& command, std::uint64_t page_size, std::uint64_t memory);
    // A request has ended. true: requests may be taken again.
    bool leave(const protocol::Command& command, std::uint64_t page_size, std::uint64_t memory);
    // Bytes of buffers and queues of the connection itself.
    void hold_memory(std::uint64_t bytes);

    // One request may always be taken. If the worker's budget is exceeded, the waiter is called
    // when there is room.
    bool may_take();

    // The rates of the export; none at first. A request that is held back is admitted by the new
    // ones.
    void limit_rates(boost::asio::io_context& io, RateLimits limits);
    // true: the request is kept until the rates admit it. The waiter is called when to check due().
    bool keeps(const protocol::Validated& request) {
        return throttle_ != nullptr && throttle_->keeps(request);
    }
    bool holding() const { return throttle_ != nullptr && throttle_->holding(); }
    // The request that is kept may execute now: release() it.
    bool due() { return throttle_->due(); }
    protocol::Validated release() { return throttle_->release(); }
    // Returns the request before it is due, to execute or drop it.
    protocol::Validated withdraw() { return throttle_->withdraw(); }

 private:
    const std::uint64_t max_in_flight_;
    Budget& budget_;
    Budget::Waiter& waiter_;
    std::uint64_t requests_ = 0;
    std::uint64_t in_flight_ = 0;         // bytes
    std::uint64_t held_ = 0;              // bytes, of memory_
    std::uint64_t memory_ = 0;            // bytes charged to the budget
    std::shared_ptr<Throttle> throttle_;  // null: there are no rates
};

}  // namespace gpunbd::server
