// What the parent of this server has passed to it: descriptors, and the sockets of the supervisor
// and of the predecessor.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>

#include "server/handover/predecessor.hpp"
#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/exit_pipe.hpp"
#include "server/supervisor/inherited_descriptors.hpp"
#include "server/supervisor/notify_socket.hpp"
#include "server/supervisor/start_gate.hpp"

namespace gpunbd::server {

struct Supervision {
    // What the parent has passed.
    struct Passed {
        // Throws std::runtime_error if a variable is invalid.
        static Passed from_environment();

        std::unique_ptr<Predecessor> predecessor = {};
        InheritedDescriptors inherited = {};
        std::optional<StartGate> start_gate = {};
        std::shared_ptr<const NotifySocket> socket = {};
    };
    // Reads further variables of the environment, and throws likewise.
    explicit Supervision(Passed passed);

    // Sends a message of sd_notify(3). Does nothing without a supervisor.
    void notify(std::string_view message) const;
    // Sends READY=1. `retains`: also sends the exit pipe.
    void notify_ready(bool retains);
    // Sends the messages that were deferred while the supervisor expected another process.
    void release_messages() const;

    const std::unique_ptr<Predecessor> predecessor;  // null: this is not an upgrade
    InheritedDescriptors inherited;  // read before this process opens descriptors of its own
    const std::optional<StartGate> start_gate;         // unset: it need not wait
    const std::shared_ptr<const NotifySocket> socket;  // null: no supervisor
    const std::optional<std::chrono::microseconds> watchdog_timeout;
    ExitPipe exit_pipe;                            // before the devices, which take long to close
    const std::unique_ptr<DescriptorStore> store;  // null: the supervisor stores no descriptors
};

}  // namespace gpunbd::server
