#include "server/nbd/scheduler.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

namespace gpunbd::server {

namespace {

constexpr std::uint32_t quiet_polls = 8;  // of the channels, for one poll of the sockets
constexpr std::chrono::microseconds pause_for_threads{20};  // less than the I/O of a file takes
// Limits of events and turns before the channels are polled again. They are enough to batch
// requests of many clients into one submission. A lone connection delays no other; data that is
// gathered for longer has left the core's own cache, and a GPU would have to fetch it from memory
// (server/PERFORMANCE.md).
constexpr std::uint32_t max_events = 64;
constexpr std::uint32_t events_per_clock = 8;
constexpr auto max_gathering = std::chrono::microseconds(100);
constexpr auto max_gathering_alone = std::chrono::microseconds(800);
// Some milliseconds, so that a client that waits for each answer still counts as active meanwhile.
constexpr std::uint32_t turns_until_alone = 256;

constexpr std::int64_t light_turn = Scheduler::turn / 8;  // the longest of a light connection
// Others are light as well in their first turns. They would slow each other down for nothing.
constexpr std::uint32_t light_turns = 8;
constexpr std::int64_t least_work = 4 * 1024;  // of a turn: its system calls
// A cycle is long enough to compare the work of connections.
constexpr auto least_cycle = std::chrono::milliseconds(2);
constexpr std::int64_t least_turns = 4;  // of each runnable, on average
constexpr std::int64_t turns_per_clock = 16;

}  // namespace

void Scheduler::round() {
    // Only those that waited before this round, so that newer events go first.
    const bool long_turn = !long_turns_.empty();
    const bool idle = !channels_.busy() && !has_turns() && !long_turn;
    if (idle) {
        wait_for_event();
        if (light_come_first()) handle_events();
        if (!channels_.busy() && !has_turns() && long_turns_.empty()) return;
        channels_.set_now(Clock::now());
    }
    const bool quiet = !gather(idle);
    // Without events, polling the channels costs far less than polling the sockets.
    std::uint32_t polls = quiet ? quiet_polls : 1;
    if (channels_.busy()) {  // at least once, even if something is ready
        if (!quiet) channels_.set_now(Clock::now());
        do channels_.poll();
        while (--polls != 0 && channels_.busy() && !has_turns());
        if (quiet && !long_turn && !has_turns() && channels_.waits_for_threads()) {
            std::this_thread::sleep_for(pause_for_threads);
        }
    }
    if (!long_turn || heavy_waited_) return;
    run_light();                                       // what the poll has made ready
    if (!long_turns_.empty()) run_first(long_turns_);  // events may have destroyed the runnable
}

bool Scheduler::gather(bool was_idle) {
    bool any = false;
    Clock::time_point end;
    for (;;) {
        // Copies of light connections wait neither for a batch, nor for turns of others.
        const bool light = run_light();
        if (light && channels_.busy() && !std::exchange(heavy_waited_, true)) return true;
        heavy_waited_ = false;
        const bool heavy = run_heavy();
        any = any || light || heavy;
        // There is nothing to batch.
        if (was_idle && alone()) return any;
        if (any && !has_turns() && !channels_.busy()) return true;
        const Clock::time_point now = Clock::now();
        channels_.set_now(now);
        const bool looks = !heavy || has_light() || now - looked_ >= max_gathering;
        if (looks) looked_ = now;
        if (!(looks && handle_events()) && !light && !heavy) return any;
        any = true;
        if (heavy && channels_.busy() && works_lightly()) return true;
        if (end == Clock::time_point{}) end = now + (alone() ? max_gathering_alone : max_gathering);
        if (now >= end) return true;
    }
}

bool Scheduler::is_light(const Runnable& runnable) const {
    const Account& account = runnable.account();
    if (!account.may_be_light_) return false;
    const auto little = [](const Account::Work& work, std::int64_t share) {
        return work.total < share && work.longest <= light_turn;
    };
    switch (cycle_ - account.cycle_) {
        case 0:
            return little(account.before_, share_before_) &&
                   little(account.now_, std::max(share_before_, share()));
        case 1:
            return little(account.now_, share_before_);
        default:
            return true;
    }
}

void Scheduler::count(Runnable& runnable, std::int64_t work) {
    Account& account = runnable.account();
    work += least_work;
    if (account.cycle_ != cycle_) {
        account.before_ = account.cycle_ + 1 == cycle_ ? account.now_ : Account::Work();
        account.now_ = {};
        account.cycle_ = cycle_;
        ++cycle_runnables_;
    }
    account.now_.total += work;
    account.now_.longest = std::max(account.now_.longest, work);
    cycle_work_ += work;
    work_ += work;
    if (++cycle_turns_ % turns_per_clock == 0) end_cycle();
    if (is_light(runnable)) {
        if (++account.light_turns_ >= light_turns) light_cycle_ = cycle_;
        if (runnable.is_linked()) {  // it has more to do
            runnable.unlink();
            light_.push_back(runnable);
        }
    } else {
        account.light_turns_ = 0;
        stop_working_lightly(runnable);
    }
}

void Scheduler::end_cycle() {
    if (cycle_turns_ < least_turns * cycle_runnables_) return;
    const Clock::time_point now = Clock::now();
    if (now - cycle_began_ < least_cycle) return;
    share_before_ = share();
    cycle_work_ = cycle_runnables_ = cycle_turns_ = 0;
    cycle_began_ = now;
    ++cycle_;
}

bool Scheduler::run_light() {
    if (light_.empty()) return false;
    // What becomes ready meanwhile runs after a turn of the others.
    Runnables now;
    now.swap(light_);
    while (!now.empty()) run_first(now);
    return true;
}

bool Scheduler::run_heavy() {
    if (heavy_.empty()) heavy_.swap(next_heavy_);
    if (heavy_.empty()) return false;
    const std::int64_t end = work_ + turn / 2;
    do run_first(heavy_);
    while (work_ < end && !heavy_.empty());
    return true;
}

void Scheduler::run_first(Runnables& waiting) {
    GPUNBD_ASSERT(!waiting.empty(), "a turn is one of a runnable that waits");
    Runnable& first = waiting.front();
    waiting.pop_front();
    run(first);
}

void Scheduler::run(Runnable& runnable) {
    GPUNBD_ASSERT(running_ == nullptr, "turns are not nested");
    running_ = &runnable;
    runnable.account().waits_for_long_turn_ = false;
    runnable.run();
    running_ = nullptr;
}

bool Scheduler::handle_events() {
    bool any = handle_sources();
    Clock::time_point end;
    for (std::uint32_t handled = 1; handled <= max_events && handle_one(false) != 0; ++handled) {
        any = true;
        if (handled % events_per_clock != 0) continue;
        const Clock::time_point now = Clock::now();  // events may have run turns
        if (end == Clock::time_point{}) end = now + max_gathering;
        if (now >= end) break;
    }
    return any;
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

std::int64_t Scheduler::turn_of(const Runnable& runnable) {
    if (last_turn_of_ != &runnable) {
        last_turn_of_ = &runnable;
        turns_in_a_row_ = 0;
    }
    ++turns_in_a_row_;
    return alone() ? lone_turn : turn;
}

bool Scheduler::alone() const { return turns_in_a_row_ > turns_until_alone; }

}  // namespace gpunbd::server
