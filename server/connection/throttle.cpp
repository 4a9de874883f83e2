#include "server/connection/throttle.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace gpunbd::server {

namespace {

// While it waits for longer, the connection looks now and then whether its client is still there.
constexpr auto longest_sleep = std::chrono::seconds(1);

// What passes, in bytes. Zeroes and trims are work of the device alone: were they counted by their
// length, one request could use up the rate of all others for hours.
std::uint64_t bytes_of(const protocol::Validated& request) {
    if (const auto* refusal = std::get_if<protocol::Refusal>(&request)) return refusal->discard;
    const auto& command = std::get<protocol::Command>(request);
    const bool passes =
        command.type == protocol::CommandType::read || command.type == protocol::CommandType::write;
    return passes ? command.length : 0;
}

// Not one to leave by, and not one of which the rest is still to come.
bool counts(const protocol::Validated& request) {
    if (const auto* command = std::get_if<protocol::Command>(&request)) {
        return command->type != protocol::CommandType::disc;
    }
    return std::holds_alternative<protocol::Refusal>(request);
}

}  // namespace

void Throttle::change(RateLimits limits) {
    if (limits == limits_) return;
    if (held_) give_back();
    limits_ = std::move(limits);
    timer_.cancel();  // which tells the waiter
}

bool Throttle::keeps(const protocol::Validated& request) {
    if (!counts(request)) return false;
    bytes_ = bytes_of(request);
    asked_ = 0;
    goes_ = Time::min();
    held_ = request;
    if (!due()) return true;
    held_.reset();
    return false;
}

bool Throttle::due() {
    const Time now = TokenBucket::Clock::now();
    for (;;) {
        if (now < goes_) {
            look_later();
            return false;
        }
        if (asked_ == 2) return true;
        TokenBucket* const bucket = (asked_ == 0 ? limits_.of_peer : limits_.of_export).get();
        ++asked_;
        if (bucket != nullptr) goes_ = bucket->take(bytes_, now);
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
    if (asked_ > 0 && limits_.of_peer) limits_.of_peer->give_back(bytes_);
    if (asked_ > 1 && limits_.of_export) limits_.of_export->give_back(bytes_);
    asked_ = 0;
    goes_ = Time::min();
}

void Throttle::look_later() {
    if (waiting_) return;
    timer_.expires_at(std::min(goes_, TokenBucket::Clock::now() + longest_sleep));
    timer_.async_wait([weak = weak_from_this()](boost::system::error_code) {
        const auto self = weak.lock();
        if (!self) return;
        self->waiting_ = false;
        if (self->held_) self->waiter_.budget_has_room();
    });
    waiting_ = true;
}

}  // namespace gpunbd::server
