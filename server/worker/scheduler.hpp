// A worker's rounds: events of sockets, then one poll of the channels, then what that has made
// ready. Each part has a budget, so that neither busy sockets nor copies keep the others waiting.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstdint>

#include "storage/devices/channels.hpp"

namespace gpunbd::server {

class Scheduler {
 public:
    // Somebody with something to do once the channels have been polled. It may go at any time.
    class Runnable : public boost::intrusive::list_base_hook<
                         boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
     public:
        virtual void run_after_poll() noexcept = 0;

     protected:
        ~Runnable() = default;
    };

    // Both outlive it.
    Scheduler(boost::asio::io_context& io, storage::Channels& channels)
        : io_(io), channels_(channels) {}

    // Blocks while there is nothing to do. Exceptions of handlers are logged and end here.
    void round();

    // For connections, on the worker's thread.
    void run_soon(Runnable& runnable) {
        if (!runnable.is_linked()) ready_.push_back(runnable);
    }
    // The connection has requests under way, or none any more.
    std::uint32_t working() const { return working_; }
    void begins_work() { ++working_; }
    void ends_work() { --working_; }
    // A lone request's copy need not wait for the end of the round: there are no others to gather.
    void submit_if_alone() {
        if (working_ == 1) channels_.poll();
    }
    // A client that has one request under way at a time was just answered: its next one is likely
    // to come before the worker could have gone to sleep and been woken.
    void expect_next_soon();

 private:
    using Clock = std::chrono::steady_clock;

    // Handles what is ready, within the budget; how many handlers that were.
    std::uint32_t handle_events();
    void wait_for_event();
    std::size_t handle_one(bool wait);
    void run_ready();

    boost::asio::io_context& io_;
    storage::Channels& channels_;
    boost::intrusive::list<Runnable, boost::intrusive::constant_time_size<false>> ready_;
    std::uint32_t working_ = 0;  // connections
    Clock::time_point busy_poll_until_;
};

}  // namespace gpunbd::server
