#include "server/nbd/admission.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "server/nbd/command_cost.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

// During a longer wait, the connection checks periodically that its client is still connected.
constexpr auto longest_sleep = std::chrono::seconds(1);

std::uint64_t bytes_of(const protocol::Validated& request) {
    if (const auto* refusal = std::get_if<protocol::Refusal>(&request)) return refusal->discard;
    return rate_cost(std::get<protocol::Command>(request));
}

// DISC is not limited, nor is a request with payload that is still to be validated.
bool is_limited(const protocol::Validated& request) {
    if (const auto* command = std::get_if<protocol::Command>(&request)) {
        return command->type != protocol::CommandType::disc;
    }
    return std::holds_alternative<protocol::Refusal>(request);
}

}  // namespace

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

void Throttle::change(RateLimits limits) {
    if (limits == limits_) return;
    if (held_) give_back();
    limits_ = std::move(limits);
    timer_.cancel();  // which calls the waiter
}

bool Throttle::keeps(const protocol::Validated& request) {
    if (!is_limited(request)) return false;
    GPUNBD_ASSERT(!held_, "one request is kept at a time");
    bytes_ = bytes_of(request);
    charged_ = 0;
    due_at_ = Time::min();
    held_ = request;
    if (!due()) return true;
    held_.reset();
    return false;
}

bool Throttle::due() {
    const Time now = TokenBucket::Clock::now();
    for (;;) {
        if (now < due_at_) {
            check_later();
            return false;
        }
        if (charged_ == 2) return true;
        TokenBucket* const bucket = (charged_ == 0 ? limits_.of_peer : limits_.of_export).get();
        ++charged_;
        if (bucket != nullptr) due_at_ = bucket->take(bytes_, now);
    }
}

protocol::Validated Throttle::release() {
    protocol::Validated request = *held_;
    held_.reset();
    return request;
}

protocol::Validated Throttle::withdraw() {
    give_back();
    timer_.cancel();
    return release();
}

void Throttle::give_back() {
    if (charged_ > 0 && limits_.of_peer) limits_.of_peer->give_back(bytes_);
    if (charged_ > 1 && limits_.of_export) limits_.of_export->give_back(bytes_);
    GPUNBD_ASSERT(held_, "tokens return of a request that has not executed");
    charged_ = 0;
    due_at_ = Time::min();
}

void Throttle::check_later() {
    if (waiting_) return;
    timer_.expires_at(std::min(due_at_, TokenBucket::Clock::now() + longest_sleep));
    timer_.async_wait([weak = weak_from_this()](boost::system::error_code) {
        const auto self = weak.lock();
        if (!self) return;
        self->waiting_ = false;
        if (self->held_) self->waiter_.budget_has_room();
    });
    waiting_ = true;
}

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
