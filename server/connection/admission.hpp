// May a connection take another request now? What its requests hold is charged: their payload and
// their work to the connection itself, the memory of the process to its worker's budget.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>

#include "protocol/gate.hpp"
#include "server/connection/budget.hpp"
#include "server/connection/throttle.hpp"

namespace gpunbd::server {

class Admission {
 public:
    // `max_in_flight`: bytes of payload and of work that this connection may have unanswered.
    Admission(std::uint64_t max_in_flight, Budget& budget, Budget::Waiter& waiter)
        : max_in_flight_(max_in_flight), budget_(budget), waiter_(waiter) {}
    ~Admission() { budget_.discharge(memory_); }
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;

    // A request begins, and has been answered. `memory`: bytes that it takes while it lives.
    void enter(const protocol::Command& command, std::uint64_t page_size, std::uint64_t memory);
    // true: the connection was over its own limit, and may take requests again.
    bool leave(const protocol::Command& command, std::uint64_t page_size, std::uint64_t memory);
    // Bytes that the connection holds beside its requests: buffers, queues.
    void hold_memory(std::uint64_t bytes);

    // One request is always let through. Where it is the worker's budget that is exceeded, the
    // waiter is told when there is room.
    bool may_take();

    // The rates of the export; none at first. A request that is held back asks them anew.
    void limit_rates(boost::asio::io_context& io, RateLimits limits);
    // true: the request has to wait for those rates, and is kept. The waiter is told when to ask
    // due().
    bool keeps(const protocol::Validated& request) {
        return throttle_ != nullptr && throttle_->keeps(request);
    }
    bool holding() const { return throttle_ != nullptr && throttle_->holding(); }
    // The one that is kept: may it go now?
    bool due() { return throttle_->due(); }
    protocol::Validated release() { return throttle_->release(); }
    // It goes without its turn, or not at all.
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
