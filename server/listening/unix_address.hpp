// Paths of Unix sockets to listen on: taken, or refused in one line that says what to do.
#pragma once

#include <sys/un.h>

#include <string>

#include "config/options.hpp"
#include "server/listening/address_error.hpp"
#include "server/listening/owned_fd.hpp"
#include "server/listening/path_lock.hpp"
#include "server/listening/socket_file.hpp"

namespace gpunbd::server {

std::string name_of(const config::UnixListener& options);
// Is what lies at the path no obstacle? Nothing, or a socket that nobody listens on any more; that
// one makes it true. Throws AddressError where something else is in the way.
bool is_stale_socket(const config::UnixListener& options);
// A socket that has its path and does not listen yet. Nobody can connect to it, for its mode is 0,
// and nobody replaces it while the lock is held.
struct BoundUnix {
    PathLock lock;  // to be let go once it listens
    SocketFile file;
    OwnedFd fd;
};
// A stale socket is replaced. Throws AddressError.
BoundUnix bind_unix(const config::UnixListener& options);
// Owner and mode as they are to be. Throws AddressError.
void open_to_clients(const config::UnixListener& options);

}  // namespace gpunbd::server
