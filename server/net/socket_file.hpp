// The file of a Unix socket that this process has bound. The destructor removes it, unless it
// belongs to another server by then.
#pragma once

#include <sys/types.h>

#include <string>

namespace gpunbd::server {

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

}  // namespace gpunbd::server
