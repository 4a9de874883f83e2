// Unmounts the ublk devices of gpunbd while the machine shuts down. systemd would unmount local
// file systems only after the server has ended.
#pragma once

#include <chrono>

namespace gpunbd::tools {

// Does nothing if the machine continues to run. Tries again each second, up to this time, while
// programs use the devices; prints the reasons. Returns the exit status. Needs CAP_SYS_ADMIN and
// CAP_SYS_CHROOT, and enters the mount namespace of process 1.
int release_ublk_at_shutdown(std::chrono::seconds patience);

}  // namespace gpunbd::tools
