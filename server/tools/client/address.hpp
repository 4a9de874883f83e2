// Where a server is to be called, looked up once: when it has died, the name server may be out of
// reach without the very device. The same addresses are called again and again.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/nbd_target.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::client {

struct Address {
    struct SocketAddress {
        sockaddr_storage storage{};
        socklen_t length = 0;
    };
    std::string text;  // for people
    std::vector<SocketAddress> addresses;
};

Or<Address> resolve(const NbdTarget& target);

// A connected socket, non-blocking. No place is waited for so long that none is left for the next.
Or<OwnedFd> dial(const Address& address, Deadline until);

}  // namespace gpunbd::client
