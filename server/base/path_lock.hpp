// The right to replace what lies at a path. Of two servers that start over one stale socket each
// would take the other's for stale until it listens: only one has the lock.
#pragma once

#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// It is a file beside the path, and there only while it is held. Not the folder: everybody who can
// read that could hold it, and keep servers from starting.
class PathLock {
 public:
    enum class Taken {};
    // Throws `Taken` where another process holds it, std::system_error where the file cannot be
    // made.
    explicit PathLock(const std::string& path);
    ~PathLock();
    PathLock(PathLock&&) noexcept = default;
    PathLock& operator=(PathLock&&) = delete;

 private:
    std::string file_;
    OwnedFd fd_;
};

}  // namespace gpunbd::server
