#include "server/nbd/admission.hpp"

#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

void Admission::change_held_memory(std::uint64_t bytes) {
    if (bytes > held_) {
        memory_ += bytes - held_;
        budget_.charge(bytes - held_);
    } else {
        GPUNBD_ASSERT(memory_ >= held_, "the held memory is a part of the charged one");
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

}  // namespace gpunbd::server
