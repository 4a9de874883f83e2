// Where a server listens: HOST:PORT, or the path of a Unix socket. The same one is called again and
// again, since a server that has died comes back there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "failure.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::attach {

struct Address {
    std::string host;  // or a path, where there is no port
    std::string port;
};

Or<Address> parse_address(std::string_view text);

// A connected socket, in blocking mode, as the kernel wants it.
Or<server::OwnedFd> dial(const Address& address);

}  // namespace gpunbd::attach
