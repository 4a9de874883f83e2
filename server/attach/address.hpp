// Where a server is to be called, looked up once: when it has died, the name server may be out of
// reach without the very device. The same addresses are called again and again.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "server/attach/failure.hpp"
#include "server/client/nbd_target.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::attach {

struct Address {
    struct Place {
        sockaddr_storage where{};
        socklen_t length = 0;
    };
    std::string text;  // for people
    std::vector<Place> places;
};

Or<Address> look_up(const server::NbdTarget& target);

// A connected socket, in blocking mode, as the kernel wants it.
Or<server::OwnedFd> dial(const Address& address);

}  // namespace gpunbd::attach
