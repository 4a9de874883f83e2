#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/daemon/service.hpp"
#include "server/handover/predecessor.hpp"
#include "server/nbd/worker.hpp"
#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/notice.hpp"
#include "server/supervisor/notify_socket.hpp"
#include "server/supervisor/passed_descriptors.hpp"
#include "server/supervisor/server_process.hpp"

namespace gpunbd::server {

// Sends the keep-alive messages that a supervisor's watchdog (WatchdogSec= of systemd) expects,
// while every worker runs.
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

// What the parent of this server has passed to it: descriptors, and the sockets of the supervisor
// and of the predecessor.
struct Supervision {
    // What the parent has passed.
    struct Passed {
        // Throws std::runtime_error if a variable is invalid.
        static Passed from_environment();

        std::unique_ptr<Predecessor> predecessor = {};
        PassedDescriptors descriptors = {};
        std::optional<StartGate> start_gate = {};
        std::shared_ptr<const NotifySocket> socket = {};
    };
    // Reads further variables of the environment, and throws likewise.
    explicit Supervision(Passed passed);

    // Sends a message of sd_notify(3). Does nothing without a supervisor.
    void notify(std::string_view message) const;
    // Sends READY=1. `keeps`: also sends the exit pipe.
    void notify_ready(bool keeps);
    // Sends the messages that were deferred while the supervisor expected another process.
    void release_messages() const;

    const std::unique_ptr<Predecessor> predecessor;  // null: this is not an upgrade
    PassedDescriptors descriptors;  // read before this process opens descriptors of its own
    const std::optional<StartGate> start_gate;         // unset: it need not wait
    const std::shared_ptr<const NotifySocket> socket;  // null: no supervisor
    const std::optional<std::chrono::microseconds> watchdog_timeout;
    ExitPipe exit_pipe;                            // before the devices, which take long to close
    const std::unique_ptr<DescriptorStore> store;  // null: the supervisor stores no descriptors
};

}  // namespace gpunbd::server
