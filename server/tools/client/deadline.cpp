#include "server/tools/client/deadline.hpp"

#include <poll.h>

#include <algorithm>

namespace gpunbd::client {

bool wait_for_socket(int fd, short events, Deadline until) {
    pollfd socket{.fd = fd, .events = events, .revents = 0};
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
        const auto most = std::max<long>(left.count(), 0);
        if (::poll(&socket, 1, static_cast<int>(most)) > 0) return true;
        if (most == 0) return false;
    }
}

}  // namespace gpunbd::client
