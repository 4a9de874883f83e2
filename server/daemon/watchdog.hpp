// Sends the keep-alive messages that a supervisor's watchdog (WatchdogSec= of systemd) expects,
// while every worker runs.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "server/daemon/poll.hpp"
#include "server/daemon/service.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

class Watchdog final : public Service {
 public:
    using Workers = std::vector<std::unique_ptr<Worker>>;

    // Reads WATCHDOG_USEC and removes it and WATCHDOG_PID from the environment. Unset: there is no
    // watchdog, or it is another process's. Throws std::runtime_error if the number is invalid.
    static std::optional<std::chrono::microseconds> timeout_from_environment();

    using Notify = std::function<void()>;  // is called on the thread of `io`
    // `io` and `workers` must outlive this object.
    Watchdog(boost::asio::io_context& io, std::chrono::microseconds timeout, const Workers& workers,
             Notify notify);

    void start() override { poll_.start(); }
    void resume() override { poll_.resume(); }
    void hand_over() override { poll_.stop(); }  // the watchdog is the successor's

    // Returns true if all workers have executed the functions of the last call. Then posts new
    // ones.
    bool all_responded();

 private:
    const Workers& workers_;
    const Notify notify_;
    Poll poll_;
    std::shared_ptr<std::atomic<std::size_t>>
        pending_;  // workers that have not responded; null: nothing posted
};

}  // namespace gpunbd::server
