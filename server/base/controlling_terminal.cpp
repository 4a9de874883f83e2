#include "server/base/controlling_terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace gpunbd::server {

bool ControllingTerminal::is_open() {
    // /dev/tty is the controlling terminal, even if the standard streams are redirected. It cannot
    // be opened after a hang-up.
    const int fd = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) ::close(fd);
    return fd >= 0;
}

}  // namespace gpunbd::server
