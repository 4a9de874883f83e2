#include "server/base/line.hpp"

#include <poll.h>
#include <unistd.h>

namespace gpunbd::server {

// If poll() reports a pipe as writable, it has room for PIPE_BUF bytes, which is more than a line.
void write_without_waiting(std::string_view text) {
    pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) return;
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace gpunbd::server
