// Resolves the address of a server, and connects to it.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "config/nbd_target.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::client {

// The addresses of a server. They are resolved once, because the name server may be unreachable
// without the device.
struct Address {
    struct SocketAddress {
        sockaddr_storage storage{};
        socklen_t length = 0;
    };
    std::string text;  // for messages
    std::vector<SocketAddress> addresses;
};

Expected<Address, Failure> resolve(const config::NbdTarget& target);

// Returns a connected, non-blocking socket. Tries all addresses and divides the time among them.
Expected<OwnedFd, Failure> dial(const Address& address, Deadline until);

}  // namespace gpunbd::client
