// What a supervisor's watchdog (WatchdogSec= of systemd) waits for: a word now and then that this
// process works, which is sent only while every worker comes to its turn.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "server/worker/worker.hpp"

namespace gpunbd::server {

class Watchdog {
 public:
    using Workers = std::vector<std::unique_ptr<Worker>>;

    // How long the supervisor waits for a word: WATCHDOG_USEC, which with WATCHDOG_PID is taken out
    // of the environment. Unset: it does not wait, or for another process. Throws
    // std::runtime_error where the number makes no sense.
    static std::optional<std::chrono::microseconds> patience_from_environment();

    // All outlive it. `tell` is called on the thread of `io`.
    Watchdog(boost::asio::io_context& io, std::chrono::microseconds patience,
             const Workers& workers, std::function<void()> tell);

    // Unless it does already: looks from time to time.
    void go_on();
    // Whether all workers have come to their turn since they were asked last; if so, they are asked
    // anew.
    bool all_work();

 private:
    const Workers& workers_;
    const std::chrono::microseconds interval_;
    const std::function<void()> tell_;
    boost::asio::steady_timer timer_;
    std::shared_ptr<std::atomic<std::size_t>> silent_;  // workers that were asked; null: none
    bool waits_ = false;
};

}  // namespace gpunbd::server
