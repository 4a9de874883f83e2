#include "server/nbd/scheduler.hpp"

#include <spdlog/spdlog.h>

#include <exception>
#include <thread>

namespace gpunbd::server {

namespace {

constexpr std::uint32_t quiet_polls = 8;  // of the channels, for one poll of the sockets
constexpr std::chrono::microseconds pause_for_threads{20};  // less than the I/O of a file takes
// Limits of sockets and turns before the channels are polled again. Either is enough to batch
// requests of many clients into one submission. A lone connection delays no other; data that is
// gathered for longer has left the core's own cache, and a GPU would have to fetch it from memory
// (server/PERFORMANCE.md).
constexpr std::uint32_t max_handlers = 64;
constexpr auto max_gathering = std::chrono::microseconds(100);
constexpr auto max_gathering_alone = std::chrono::microseconds(800);
constexpr std::uint32_t handlers_per_clock = 8;
// Some milliseconds, so that a client that waits for each answer still counts as active meanwhile.
constexpr std::uint32_t turns_until_alone = 256;

}  // namespace

void Scheduler::round() {
    std::uint32_t polls = 1;
    bool quiet = false;
    // Only those that waited before this round, so that newer events go first.
    const bool long_turn = !long_turns_.empty();
    if (channels_.busy() || !ready_.empty() || !turns_.empty() || long_turn) {
        // Without socket events, polling the channels costs far less than polling the sockets.
        quiet = !gather();
        if (quiet) polls = quiet_polls;
    } else {
        wait_for_event();
        // Batches requests of other clients into the same submission.
        if (channels_.busy() && working_ > 1) gather();
    }
    if (channels_.busy()) {  // at least once, even if something is ready
        do channels_.poll();
        while (--polls != 0 && channels_.busy() && ready_.empty());
        if (quiet && !long_turn && ready_.empty() && channels_.waits_for_threads()) {
            std::this_thread::sleep_for(pause_for_threads);
        }
    }
    run_ready();
    if (long_turn) run_first(long_turns_);
}

bool Scheduler::gather() {
    Clock::time_point end;
    std::uint32_t handled = 0;
    while (handled != max_handlers) {
        const bool turn = run_first(turns_) || handle_sources();
        if (handle_one(false) == 0 && !turn) break;
        ++handled;
        if (!turn && handled % handlers_per_clock != 0) continue;
        const Clock::time_point now = Clock::now();
        if (end == Clock::time_point{}) end = now + (alone() ? max_gathering_alone : max_gathering);
        if (now >= end) break;
    }
    return handled != 0;
}

bool Scheduler::run_first(Runnables& waiting) {
    if (waiting.empty()) return false;
    Runnable& first = waiting.front();
    waiting.pop_front();
    first.run();
    return true;
}

void Scheduler::wait_for_event() {
    while (busy_poll_until_ != Clock::time_point{}) {
        if (handle_sources() || handle_one(false) != 0) return;
        if (Clock::now() >= busy_poll_until_) busy_poll_until_ = {};
    }
    block();
}

bool Scheduler::handle_sources() {
    bool any = false;
    for (Source& each : sources_) any = each.handle() || any;
    return any;
}

void Scheduler::block() {
    for (Source& each : sources_) each.set_wakes(true);
    const bool handled = handle_sources();  // events from before set_wakes() wake nothing
    if (!handled) handle_one(true);
    for (Source& each : sources_) each.set_wakes(false);
    if (!handled) handle_sources();
}

std::size_t Scheduler::handle_one(bool wait) {
    try {
        return wait ? io_.run_one() : io_.poll_one();
    } catch (const std::exception& error) {
        // Connections catch their own exceptions; this one belongs to none.
        spdlog::error("a worker failed to handle an event: {}", error.what());
        return 1;
    }
}

void Scheduler::run_ready() {
    // What becomes ready meanwhile runs in the next round.
    Runnables now;
    now.swap(ready_);
    while (!now.empty()) {
        Runnable& runnable = now.front();
        now.pop_front();
        runnable.run();
    }
}

bool Scheduler::begins_lone_turn(const Runnable& connection) {
    if (last_turn_of_ != &connection) {
        last_turn_of_ = &connection;
        turns_in_a_row_ = 0;
    }
    ++turns_in_a_row_;
    return alone();
}

bool Scheduler::alone() const { return turns_in_a_row_ > turns_until_alone; }

}  // namespace gpunbd::server
