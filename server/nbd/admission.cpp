#include "server/nbd/admission.hpp"

#include <utility>

#include "server/nbd/command_cost.hpp"

namespace gpunbd::server {

void Admission::enter(const protocol::Command& command, std::uint64_t page_size,
                      std::uint64_t memory) {
    ++requests_;
    in_flight_ += in_flight_cost(command, page_size);
    memory_ += memory;
    budget_.charge(memory);
}

bool Admission::leave(const protocol::Command& command, std::uint64_t page_size,
                      std::uint64_t memory) {
    const bool was_over = in_flight_ > max_in_flight_;
    --requests_;
    in_flight_ -= in_flight_cost(command, page_size);
    memory_ -= memory;
    budget_.discharge(memory);
    return was_over || requests_ == 0;
}

void Admission::hold_memory(std::uint64_t bytes) {
    if (bytes > held_) {
        memory_ += bytes - held_;
        budget_.charge(bytes - held_);
    } else if (bytes < held_) {
        memory_ -= held_ - bytes;
        budget_.discharge(held_ - bytes);
    }
    held_ = bytes;
}

void Admission::limit_rates(boost::asio::io_context& io, RateLimits limits) {
    if (throttle_ == nullptr && limits == RateLimits{}) return;
    if (throttle_ == nullptr) throttle_ = std::make_shared<Throttle>(io, waiter_);
    throttle_->change(std::move(limits));
}

bool Admission::may_take() {
    if (requests_ == 0) return true;
    if (in_flight_ > max_in_flight_) return false;
    if (!budget_.exceeded()) return true;
    budget_.wait(waiter_);
    return false;
}

}  // namespace gpunbd::server
