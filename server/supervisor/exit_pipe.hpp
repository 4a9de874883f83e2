// What tells a supervisor that a server is dying before it is dead: a pipe whose one end the server
// holds as long as it lives, and the supervisor the other. The kernel closes descriptors in the
// order of their numbers, so that this one, opened early, is cut long before a GPU's driver has
// undone what the process had mapped.
#pragma once

#include <optional>
#include <string>

#include "server/supervisor/notify_socket.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class ExitPipe {
 public:
    // Where no descriptors are left, there is none, and nobody is told.
    ExitPipe();

    // Gives the supervisor its end; one that knows of none, as systemd, drops it. What went wrong,
    // if it did.
    std::optional<std::string> hand_over(const NotifySocket& supervisor);

 private:
    std::optional<OwnedFd> own_end_;
    std::optional<OwnedFd> supervisors_end_;
};

}  // namespace gpunbd::server
