#include "server/base/controlling_terminal.hpp"

#include <fcntl.h>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

bool ControllingTerminal::is_there() {
    // Stands for the terminal however the standard streams are redirected; after a hang-up it
    // cannot be opened.
    return static_cast<bool>(OwnedFd(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)));
}

}  // namespace gpunbd::server
