// Queries systemd whether the machine shuts down.
#pragma once

namespace gpunbd::server {

// Runs systemctl, so it may block. Returns false without systemd.
bool machine_is_shutting_down();

}  // namespace gpunbd::server
