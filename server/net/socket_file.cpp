#include "server/net/socket_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace gpunbd::server {

SocketFile::SocketFile(std::string path) {
    struct stat file {};
    if (::lstat(path.c_str(), &file) != 0) return;
    path_ = std::move(path);
    device_ = file.st_dev;
    inode_ = file.st_ino;
}

SocketFile::SocketFile(SocketFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), device_(other.device_), inode_(other.inode_) {}

void SocketFile::remove() noexcept {
    struct stat file {};
    if (path_.empty() || ::lstat(path_.c_str(), &file) != 0) return;
    if (file.st_dev == device_ && file.st_ino == inode_) ::unlink(path_.c_str());
    path_.clear();
}

}  // namespace gpunbd::server
