// Paths of Unix sockets to listen on, with one-line errors.
#pragma once

#include <sys/un.h>

#include <string>

#include "config/options.hpp"
#include "server/base/path_lock.hpp"
#include "server/net/address_error.hpp"
#include "server/net/socket_file.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

std::string name_of(const config::UnixListener& options);
// True if the path is free or has a socket on which no process listens. Throws AddressError if
// something else is in the way.
bool is_stale_socket(const config::UnixListener& options);
// Returns a bound socket that does not listen yet. No client can connect, since its mode is 0, and
// no server replaces it while the lock is held.
struct BoundUnix {
    PathLock lock;  // release once the socket listens
    SocketFile file;
    OwnedFd fd;
};
// Replaces a stale socket. Throws AddressError.
BoundUnix bind_unix(const config::UnixListener& options);
// Sets owner and mode. Throws AddressError.
void open_to_clients(const config::UnixListener& options);

}  // namespace gpunbd::server
