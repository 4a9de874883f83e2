#include "server/worker/scheduler.hpp"

#include <spdlog/spdlog.h>

#include <exception>

namespace gpunbd::server {

namespace {

constexpr auto busy_poll = std::chrono::microseconds(50);
constexpr std::uint32_t quiet_polls = 8;  // of the channels, for one look at the sockets
// What sockets get before the channels are polled again. Either is enough to gather what many
// clients want into one submission.
constexpr std::uint32_t max_handlers = 64;
constexpr auto max_handling = std::chrono::microseconds(200);
constexpr std::uint32_t handlers_per_clock = 8;

}  // namespace

void Scheduler::round() {
    std::uint32_t polls = 1;
    if (channels_.busy() || !ready_.empty()) {
        // With nothing to do for sockets, a poll of the channels costs far less than a look at
        // them.
        if (handle_events() == 0) polls = quiet_polls;
    } else {
        wait_for_event();
        // Gathers what other clients want into the same submission.
        if (channels_.busy() && working_ > 1) handle_events();
    }
    for (; polls != 0 && channels_.busy() && ready_.empty(); --polls) channels_.poll();
    run_ready();
}

std::uint32_t Scheduler::handle_events() {
    std::uint32_t handled = 0;
    Clock::time_point end;
    while (handled != max_handlers && handle_one(false) != 0) {
        ++handled;
        if (handled % handlers_per_clock != 0) continue;
        const Clock::time_point now = Clock::now();
        if (handled == handlers_per_clock) end = now + max_handling;
        if (now >= end) break;
    }
    return handled;
}

void Scheduler::wait_for_event() {
    while (busy_poll_until_ != Clock::time_point{}) {
        if (handle_one(false) != 0) return;
        if (Clock::now() >= busy_poll_until_) busy_poll_until_ = {};
    }
    handle_one(true);
}

std::size_t Scheduler::handle_one(bool wait) {
    try {
        return wait ? io_.run_one() : io_.poll_one();
    } catch (const std::exception& error) {
        // Connections catch their own; what comes here could not be given to one.
        spdlog::error("an event of a worker was lost: {}", error.what());
        return 1;
    }
}

void Scheduler::run_ready() {
    // What becomes ready meanwhile has its turn in the next round.
    boost::intrusive::list<Runnable, boost::intrusive::constant_time_size<false>> now;
    now.swap(ready_);
    while (!now.empty()) {
        Runnable& runnable = now.front();
        now.pop_front();
        runnable.run_after_poll();
    }
}

void Scheduler::expect_next_soon() { busy_poll_until_ = Clock::now() + busy_poll; }

}  // namespace gpunbd::server
