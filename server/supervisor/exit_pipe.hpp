// A pipe that notifies the supervisor of the exit of a server before the process is dead. The
// server holds the write end, the supervisor the read end. The kernel closes descriptors in
// ascending order, so this pipe, which is opened early, is closed long before the GPU driver has
// released the mappings of the process.
#pragma once

#include <optional>
#include <string>

#include "server/supervisor/notify_socket.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class ExitPipe {
 public:
    // If no descriptor is available, there is no pipe and no early notification.
    ExitPipe();

    // Sends the read end to the supervisor. A supervisor that does not support it, such as systemd,
    // closes it. Returns the problem, if any.
    std::optional<std::string> hand_over(const NotifySocket& supervisor);

 private:
    std::optional<OwnedFd> own_end_;
    std::optional<OwnedFd> supervisors_end_;
};

}  // namespace gpunbd::server
