// Calls a function at an interval. A round that throws, or that cannot be armed for lack of memory,
// is made up for by resume().
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>

namespace gpunbd::server {

class Poll {
 public:
    // `round` returns whether there is to be another one. `io` must outlive this object.
    Poll(boost::asio::io_context& io, std::chrono::microseconds interval,
         std::function<bool()> round);

    // The first round comes after one interval.
    void start();
    // After start(): arms the timer, unless it is armed or the last round has been.
    void resume();
    void stop();

 private:
    void arm();

    boost::asio::steady_timer timer_;
    const std::chrono::microseconds interval_;
    const std::function<bool()> round_;
    bool active_ = false;
    bool armed_ = false;
};

}  // namespace gpunbd::server
