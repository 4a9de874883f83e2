// Paths of Unix sockets to listen on: taken, or refused in one line that says what to do.
#pragma once

#include <sys/un.h>

#include <string>

#include "config/options.hpp"
#include "server/listening/address_error.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::server {

std::string name_of(const config::UnixListener& options);
// Is what lies at the path no obstacle? Nothing, or a socket that nobody listens on any more; that
// one makes it true. Throws AddressError where something else is in the way.
bool is_stale_socket(const config::UnixListener& options);
// A socket at the path that nobody can connect to yet: its mode is 0. A stale one is replaced.
// Throws AddressError.
OwnedFd bind_unix(const config::UnixListener& options);
// Owner and mode as they are to be. Throws AddressError.
void open_to_clients(const config::UnixListener& options);

}  // namespace gpunbd::server
