// A worker's rounds: events of sockets and turns of connections, then one poll of the channels,
// then what that has made ready. Each part has a budget, so that neither busy sockets nor copies
// keep the others waiting.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstdint>

#include "storage/devices/channels.hpp"

namespace gpunbd::server {

class Scheduler {
 public:
    // Somebody with something to do, in its turn or once the channels have been polled. It may go
    // at any time.
    class Runnable : public boost::intrusive::list_base_hook<
                         boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
     public:
        virtual void run() noexcept = 0;

     protected:
        ~Runnable() = default;
    };

    // Both outlive it.
    Scheduler(boost::asio::io_context& io, storage::Channels& channels)
        : io_(io), channels_(channels) {}

    // Blocks while there is nothing to do. Exceptions of handlers are logged and end here.
    void round();

    // For connections, on the worker's thread. Once the channels have been polled:
    void run_soon(Runnable& runnable) {
        if (!runnable.is_linked()) ready_.push_back(runnable);
    }
    // After the others that have more to do now:
    void run_in_turn(Runnable& runnable) {
        if (!runnable.is_linked()) turns_.push_back(runnable);
    }
    // One in each round, whatever else there is: what takes far longer than a turn may.
    void run_once_a_round(Runnable& runnable) {
        if (!runnable.is_linked()) long_turns_.push_back(runnable);
    }
    // The connection has requests under way, or none any more.
    std::uint32_t working() const { return working_; }
    void begins_work() { ++working_; }
    void ends_work() { --working_; }
    // Counts a turn of a connection. Whether the last ones on this worker were all its own, so that
    // nobody waits for the end of a longer one.
    bool begins_lone_turn(const Runnable& connection);
    // A lone request's copy need not wait for the end of the round: there are no others to gather.
    void submit_if_alone() {
        if (working_ == 1) channels_.poll();
    }
    // A client that has one request under way at a time was just answered: its next one is likely
    // to come before the worker could have gone to sleep and been woken.
    void expect_next_soon();

 private:
    using Clock = std::chrono::steady_clock;

    using Runnables = boost::intrusive::list<Runnable, boost::intrusive::constant_time_size<false>>;

    bool alone() const;
    // Events and turns, within the budget; false: there were none.
    bool gather();
    void wait_for_event();
    std::size_t handle_one(bool wait);
    static bool run_first(Runnables& waiting);
    void run_ready();

    boost::asio::io_context& io_;
    storage::Channels& channels_;
    Runnables turns_;
    Runnables long_turns_;
    Runnables ready_;
    std::uint32_t working_ = 0;               // connections
    const Runnable* last_turn_of_ = nullptr;  // who it is, no more: it may have gone
    std::uint32_t turns_in_a_row_ = 0;
    Clock::time_point busy_poll_until_;
};

}  // namespace gpunbd::server
