#include "server/base/controlling_terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace gpunbd::server {

bool ControllingTerminal::is_there() {
    // Stands for the terminal however the standard streams are redirected; after a hang-up it
    // cannot be opened.
    const int fd = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) ::close(fd);
    return fd >= 0;
}

}  // namespace gpunbd::server
