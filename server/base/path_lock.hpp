// A lock file that serialises the replacement of a stale socket. Without it, two starting servers
// could each remove the socket of the other before it listens.
#pragma once

#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

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

}  // namespace gpunbd::server
