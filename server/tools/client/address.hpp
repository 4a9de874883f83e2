// The addresses of a server. They are resolved once, because the name server may be unreachable
// without the device.
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
    std::string text;  // for messages
    std::vector<SocketAddress> addresses;
};

Or<Address> resolve(const NbdTarget& target);

// Returns a connected, non-blocking socket. Tries all addresses and divides the time among them.
Or<OwnedFd> dial(const Address& address, Deadline until);

}  // namespace gpunbd::client
