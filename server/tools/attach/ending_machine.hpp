// Whether the machine is being shut down, as systemd says.
#pragma once

namespace gpunbd::attach {

// Runs systemctl, and so may wait. False where there is no systemd.
bool machine_is_ending();

}  // namespace gpunbd::attach
