// The rounds of a worker: socket events and turns of connections, then one poll of the channels,
// then the connections that the poll has made ready. Each part has a budget, so that neither busy
// sockets nor copies starve the others.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstdint>

#include "storage/assertions/assert.hpp"
#include "storage/devices/channels.hpp"

namespace gpunbd::server {

class Scheduler {
 public:
    // May be destroyed at any time.
    class Runnable : public boost::intrusive::list_base_hook<
                         boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
     public:
        virtual void run() noexcept = 0;

     protected:
        ~Runnable() = default;
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

    // On the worker's thread. Runs once the channels have been polled.
    void run_soon(Runnable& runnable) {
        if (!runnable.is_linked()) ready_.push_back(runnable);
    }
    // Runs after the others that have more to do now.
    void run_in_turn(Runnable& runnable) {
        if (!runnable.is_linked()) turns_.push_back(runnable);
    }
    // One runs in each round: for work that takes far longer than a turn.
    void run_once_a_round(Runnable& runnable) {
        if (!runnable.is_linked()) long_turns_.push_back(runnable);
    }
    // Connections with requests in flight.
    std::uint32_t working() const { return working_; }
    void begins_work() { ++working_; }
    void ends_work() {
        GPUNBD_ASSERT(working_ != 0, "only work that has begun ends");
        --working_;
    }
    // Counts a turn of the connection. true: the last turns on this worker were all its own, so a
    // longer one delays no other connection.
    bool begins_lone_turn(const Runnable& connection);
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
    static constexpr auto busy_poll = std::chrono::microseconds(50);

    using Runnables = boost::intrusive::list<Runnable, boost::intrusive::constant_time_size<false>>;

    bool alone() const;
    // Handles events and turns within the budget. false: there were none.
    bool gather();
    void wait_for_event();
    bool handle_sources();
    // Blocks, unless a source has events.
    void block();
    std::size_t handle_one(bool wait);
    static bool run_first(Runnables& waiting);
    void run_ready();

    boost::asio::io_context& io_;
    storage::Channels& channels_;
    boost::intrusive::list<Source, boost::intrusive::constant_time_size<false>> sources_;
    Runnables turns_;
    Runnables long_turns_;
    Runnables ready_;
    std::uint32_t working_ = 0;               // connections
    const Runnable* last_turn_of_ = nullptr;  // compared only, it may have been destroyed
    std::uint32_t turns_in_a_row_ = 0;
    Clock::time_point busy_poll_until_;
};

}  // namespace gpunbd::server
