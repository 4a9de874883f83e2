// Calls a function at an interval. resume() restarts it after a round that has thrown, or that
// could not be armed for lack of memory.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>

namespace gpunbd::server {

class Poll {
 public:
    using Round = std::function<bool()>;  // returns false to stop
    // `io` must outlive this object.
    Poll(boost::asio::io_context& io, std::chrono::microseconds interval, Round round);

    // The first round starts after one interval.
    void start();
    // Arms the timer, unless it is armed, start() was not called, or the last round has run.
    void resume();
    void stop();

 private:
    void arm();

    boost::asio::steady_timer timer_;
    const std::chrono::microseconds interval_;
    const Round round_;
    bool active_ = false;
    bool armed_ = false;
};

}  // namespace gpunbd::server
