#include "server/connection/admission.hpp"

#include <utility>

namespace gpunbd::server {

namespace {

constexpr std::uint64_t request_cost = 512;  // bytes in flight that any request counts for
constexpr std::uint64_t page_cost = 4096;    // to take a page out of the table, or put one in

// Bytes in flight: payload, and work as if it were payload.
std::uint64_t cost_of(const protocol::Command& command, std::uint64_t page_size) {
    switch (command.type) {
        case protocol::CommandType::read:
        case protocol::CommandType::write:
            return request_cost + command.length;
        case protocol::CommandType::trim:
        case protocol::CommandType::write_zeroes:
            return request_cost +
                   (command.no_hole ? command.length : command.length / page_size * page_cost);
        default:
            return request_cost;
    }
}

}  // namespace

void Admission::enter(const protocol::Command& command, std::uint64_t page_size,
                      std::uint64_t memory) {
    ++requests_;
    in_flight_ += cost_of(command, page_size);
    memory_ += memory;
    budget_.charge(memory);
}

bool Admission::leave(const protocol::Command& command, std::uint64_t page_size,
                      std::uint64_t memory) {
    const bool was_over = in_flight_ > max_in_flight_;
    --requests_;
    in_flight_ -= cost_of(command, page_size);
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
