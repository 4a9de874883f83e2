#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <string>

#include "config/options.hpp"
#include "server/net/address_error.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// The file of a Unix socket that this process has bound. The destructor removes it, unless it
// belongs to another server by then.
class SocketFile {
 public:
    SocketFile() = default;
    // Takes the file at `path`.
    explicit SocketFile(std::string path);
    ~SocketFile() { remove(); }
    SocketFile(SocketFile&& other) noexcept;
    SocketFile& operator=(SocketFile&&) = delete;

    // Call while the socket still listens, so that no other server takes the file for stale and
    // replaces it before it is removed.
    void remove() noexcept;
    // The file stays.
    void leave() noexcept { path_.clear(); }

 private:
    std::string path_;  // empty: none
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

// A lock file that serialises the replacement of a stale socket. Without it, two starting servers
// could each remove the socket of the other before it listens.
// The file is beside the path and exists only while it is locked. The folder itself is not locked,
// because every user who can read it could lock it and block servers.
class PathLock {
 public:
    enum class Busy {};
    // Throws `Busy` if another process holds the lock, std::system_error if the file cannot be
    // created, ENOLCK if it cannot be locked.
    explicit PathLock(const std::string& path);
    ~PathLock();
    PathLock(PathLock&&) noexcept = default;
    PathLock& operator=(PathLock&&) = delete;

 private:
    std::string file_;
    OwnedFd fd_;
};

// Paths of Unix sockets to listen on, with one-line errors.

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
