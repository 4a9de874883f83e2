// The file of a Unix socket that this process has bound. At the end it is removed, unless another
// server's is there by then.
#pragma once

#include <sys/types.h>

#include <string>

namespace gpunbd::server {

class SocketFile {
 public:
    SocketFile() = default;
    // What lies at `path` now.
    explicit SocketFile(std::string path);
    ~SocketFile() { remove(); }
    SocketFile(SocketFile&& other) noexcept;
    SocketFile& operator=(SocketFile&&) = delete;

    // To be called while the socket still listens: nobody takes its file for a stale one, and
    // replaces it between the look and the removal.
    void remove() noexcept;
    // It stays where it is.
    void leave() noexcept { path_.clear(); }

 private:
    std::string path_;  // empty: none
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace gpunbd::server
