// The rounds of a worker: events and turns of connections, then one poll of the channels. Each part
// has a budget, so that neither busy sockets nor copies starve the others.
//
// As in fq_codel (RFC 8290), there are two queues. A light connection has short turns, and does
// less than an equal share of the work of all connections. Light connections have their turns
// before all others. While there are any, the worker looks for their events after each turn of the
// others, which takes about 50 us.
#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstdint>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/channels.hpp"

namespace gpunbd::server {

class Scheduler {
 public:
    // Work is counted in bytes of payload that take as long.
    static constexpr std::int64_t turn = 256 * 1024;
    static constexpr std::int64_t lone_turn = 4 * turn;

    // The recent work of a runnable.
    class Account {
        friend class Scheduler;
        struct Work {
            std::int64_t total = 0;
            std::int64_t longest = 0;  // turn
        };
        std::uint64_t cycle_ = 0;        // of the last turn
        Work now_;                       // in that cycle
        Work before_;                    // in the cycle before
        std::uint32_t light_turns_ = 0;  // in a row
        bool may_be_light_ = false;
        bool works_lightly_ = false;  // has requests in flight, and was light when they began
        bool waits_for_long_turn_ = false;
    };

    // Something that has turns: a connection, or the queue of a local device. May be destroyed at
    // any time.
    class Runnable : public boost::intrusive::list_base_hook<
                         boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
     public:
        // One turn.
        virtual void run() noexcept = 0;
        Account& account() { return account_; }
        const Account& account() const { return account_; }

     protected:
        ~Runnable() = default;

     private:
        Account account_;
    };

    // Events that can be seen in memory, which costs less than polling the sockets.
    class Source : public boost::intrusive::list_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
     public:
        // Handles the events that have arrived. false: there were none.
        virtual bool handle() noexcept = 0;
        // true: the worker may block, and each later event must wake it. false: it checks handle().
        virtual void set_wakes(bool wakes) noexcept = 0;

     protected:
        ~Source() = default;
    };

    // Both must outlive the scheduler.
    Scheduler(boost::asio::io_context& io, storage::Channels& channels)
        : io_(io), channels_(channels) {}

    // Blocks while there is nothing to do. Logs exceptions of handlers.
    void round();

    // On the worker's thread. Until the source is destroyed.
    void add(Source& source) { sources_.push_back(source); }

    // On the worker's thread, as everything below. The runnable gets a turn, which is not nested in
    // another one.
    void run_soon(Runnable& runnable) {
        if (runnable.is_linked()) return;
        // Within its own turn, count() decides.
        const bool light = &runnable != running_ && is_light(runnable);
        (light ? light_ : next_heavy_).push_back(runnable);
    }
    // The same from the handler of an event: at once, unless light connections come first, or the
    // runnable waits for a long turn.
    void run_at_event(Runnable& runnable) {
        if (runnable.account().waits_for_long_turn_) return;
        if (light_come_first()) {
            run_soon(runnable);
        } else {
            channels_.set_now(Clock::now());
            run(runnable);
        }
    }
    // From now on, the runnable is light while it does little. Before, a flood of new connections
    // could have delayed all others.
    static void may_be_light(Runnable& runnable) { runnable.account().may_be_light_ = true; }
    // One runs in each round: for work that takes far longer than a turn.
    void run_once_a_round(Runnable& runnable) {
        GPUNBD_ASSERT(!runnable.account().may_be_light_, "a light connection has short turns");
        runnable.unlink();  // no other turn comes first
        long_turns_.push_back(runnable);
        runnable.account().waits_for_long_turn_ = true;
    }
    // Counts the work of a turn that ends. Called by the runnable within the turn.
    void count(Runnable& runnable, std::int64_t work);
    // The work of the turn that begins.
    std::int64_t turn_of(const Runnable& runnable);
    // Bytes that one turn may receive, and send: more than its work, since long sends and receives
    // are cheaper, unless a light connection would have to wait for them.
    std::int64_t transfer_limit() const { return light_come_first() ? turn : lone_turn; }

    // Whether a turn is due.
    bool has_turns() const { return !light_.empty() || !heavy_.empty() || !next_heavy_.empty(); }
    // Whether the runnable has done little lately.
    bool is_light(const Runnable& runnable) const;
    // Runnables with requests in flight.
    std::uint32_t working() const { return working_; }
    void begins_work(Runnable& runnable) {
        ++working_;
        runnable.account().works_lightly_ = is_light(runnable);
        if (runnable.account().works_lightly_) ++working_lightly_;
    }
    void ends_work(Runnable& runnable) {
        GPUNBD_ASSERT(working_ != 0, "only work that has begun ends");
        --working_;
        stop_working_lightly(runnable);
    }
    // The copy of a lone request need not wait for the end of the round, since there is nothing to
    // batch.
    void submit_if_alone() {
        if (working_ == 1) channels_.poll();
    }
    // A client with one request in flight was just answered. Its next one is likely to arrive
    // before the worker could sleep and wake up.
    void expect_next_soon() { busy_poll_until_ = Clock::now() + busy_poll; }

 private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::uint64_t light_cycles = 256;  // of at least 2 ms
    static constexpr auto busy_poll = std::chrono::microseconds(50);

    using Runnables = boost::intrusive::list<Runnable, boost::intrusive::constant_time_size<false>>;

    // The work of one of the connections that have had turns in this cycle, if it were equal.
    std::int64_t share() const { return cycle_work_ / std::max(cycle_runnables_, std::int64_t{1}); }
    // Whether a light connection had turns in the last half second of work.
    bool has_light() const { return cycle_ - light_cycle_ < light_cycles; }
    // Whether there is also another connection.
    bool light_come_first() const { return has_light() && !alone(); }
    // Whether light connections have requests in flight. Those that stall count for a moment.
    bool works_lightly() const { return working_lightly_ != 0 && cycle_ - light_cycle_ <= 1; }
    void stop_working_lightly(Runnable& runnable) {
        if (std::exchange(runnable.account().works_lightly_, false)) --working_lightly_;
    }
    bool alone() const;
    // Handles events and turns within the budget. false: there were none. `was_idle`: the worker
    // has waited for an event.
    bool gather(bool was_idle);
    // Both: false: there were none.
    bool run_light();
    bool run_heavy();
    void end_cycle();
    bool handle_events();
    void wait_for_event();
    bool handle_sources();
    // Blocks, unless a source has events.
    void block();
    std::size_t handle_one(bool wait);
    void run(Runnable& runnable);
    void run_first(Runnables& waiting);

    boost::asio::io_context& io_;
    storage::Channels& channels_;
    boost::intrusive::list<Source, boost::intrusive::constant_time_size<false>> sources_;
    Runnables light_;
    Runnables heavy_;
    Runnables next_heavy_;
    Runnables long_turns_;
    std::uint32_t working_ = 0;
    std::uint32_t working_lightly_ = 0;
    std::int64_t work_ = 0;  // since the start
    // Cycles measure the work of each connection. Of the current one:
    std::uint64_t cycle_ = light_cycles;
    Clock::time_point cycle_began_;
    std::int64_t cycle_work_ = 0;
    std::int64_t cycle_turns_ = 0;
    std::int64_t cycle_runnables_ = 0;  // those that have had turns
    std::int64_t share_before_ = turn;  // share() of the cycle before
    std::uint64_t light_cycle_ = 0;     // the last one with a turn of a light connection
    bool heavy_waited_ = false;         // no heavy connection had a turn before the last poll
    const Runnable* running_ = nullptr;
    const Runnable* last_turn_of_ = nullptr;  // compared only, it may have been destroyed
    std::uint32_t turns_in_a_row_ = 0;
    Clock::time_point looked_;  // for events, between turns
    Clock::time_point busy_poll_until_;
};

}  // namespace gpunbd::server
