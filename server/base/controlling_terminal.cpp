#include "server/base/controlling_terminal.hpp"

#include <fcntl.h>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

bool ControllingTerminal::is_open() {
    // /dev/tty is the controlling terminal, even if the standard streams are redirected. It cannot
    // be opened after a hang-up.
    return static_cast<bool>(OwnedFd(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)));
}

}  // namespace gpunbd::server
