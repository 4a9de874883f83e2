#include "server/net/unix_address.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "server/base/file_checks.hpp"

namespace gpunbd::server {

namespace {

int lock(const std::string& file) {
    constexpr mode_t private_to_us = 0600;
    for (;;) {
        OwnedFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, private_to_us));
        if (fd.get() < 0) throw std::system_error(errno, std::generic_category());
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno == EINTR) continue;
            if (errno == EWOULDBLOCK) throw PathLock::Busy{};
            throw std::system_error(ENOLCK, std::generic_category());
        }
        // An earlier holder may have removed the file after it was opened; the lock is then void.
        struct stat opened {};
        if (::fstat(fd.get(), &opened) == 0 && opened.st_nlink != 0) return fd.release();
    }
}

sockaddr_un address_of(const config::UnixListener& options) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (options.path.empty() || options.path.size() >= sizeof address.sun_path) {
        throw AddressError(AddressError::Kind::other,
                           fmt::format("{}: a path must have 1 to {} bytes", name_of(options),
                                       sizeof address.sun_path - 1));
    }
    std::memcpy(address.sun_path, options.path.data(), options.path.size());
    return address;
}

OwnedFd new_socket(const config::UnixListener& options) {
    OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() >= 0) return fd;
    throw AddressError(
        AddressError::Kind::other,
        fmt::format("{}: cannot create a socket: {}", name_of(options), std::strerror(errno)));
}

// The process that called listen() on what `fd` is connected to.
Holder peer_of(int fd) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid == 0) return {};
    return process(peer.pid);
}

PathLock lock_path(const config::UnixListener& options) {
    try {
        return PathLock(options.path);
    } catch (const PathLock::Busy&) {
        throw AddressError(
            AddressError::Kind::taken,
            fmt::format("{}: another server is starting there; stop it, or choose another path",
                        name_of(options)));
    } catch (const std::system_error& error) {
        throw AddressError(AddressError::Kind::other,
                           fmt::format("{}: {}", name_of(options),
                                       create_error(options.path, error.code().value())));
    }
}

}  // namespace

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

PathLock::PathLock(const std::string& path) : file_(path + ".lock"), fd_(lock(file_)) {}

PathLock::~PathLock() {
    if (fd_.get() >= 0) ::unlink(file_.c_str());
}

std::string name_of(const config::UnixListener& options) { return "unix socket " + options.path; }

bool is_stale_socket(const config::UnixListener& options) {
    const sockaddr_un address = address_of(options);
    struct stat file {};
    if (::lstat(address.sun_path, &file) != 0) return false;
    if (!S_ISSOCK(file.st_mode)) {
        throw AddressError(
            AddressError::Kind::other,
            name_of(options) +
                ": the path is a file that is not a socket; remove it, or choose another path");
    }
    const OwnedFd probe = new_socket(options);
    const bool connected =
        ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    // A server with a full backlog is in use; do not wait for it.
    if (connected || errno == EAGAIN) {
        Holder holder = connected ? peer_of(probe.get()) : Holder{};
        const std::string text =
            fmt::format("{}: another server is listening there{}; stop it, or choose another path",
                        name_of(options), holder.pid == 0 ? "" : "," + holder.by().substr(3));
        throw AddressError(AddressError::Kind::taken, text, std::move(holder));
    }
    return errno == ECONNREFUSED;
}

BoundUnix bind_unix(const config::UnixListener& options) {
    const sockaddr_un address = address_of(options);
    is_stale_socket(options);  // report a socket in use before errors of the folder
    PathLock lock = lock_path(options);
    if (is_stale_socket(options)) ::unlink(options.path.c_str());
    OwnedFd fd = new_socket(options);
    // No client may connect between bind() and chmod().
    const mode_t before = ::umask(0777);
    const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    const int error = errno;
    ::umask(before);
    if (bound != 0) {
        throw AddressError(
            AddressError::Kind::other,
            fmt::format("{}: {}", name_of(options), create_error(options.path, error)));
    }
    return {.lock = std::move(lock), .file = SocketFile(options.path), .fd = std::move(fd)};
}

void open_to_clients(const config::UnixListener& options) {
    const auto refuse = [&](const std::string& why) {
        return AddressError(AddressError::Kind::other,
                            fmt::format("{}: {}", name_of(options), why));
    };
    if (!options.owner.empty()) {
        FileOwner owner;
        try {
            owner = find_owner(options.owner);
        } catch (const std::runtime_error& error) {
            throw refuse(error.what());
        }
        if (::chown(options.path.c_str(), owner.uid, owner.gid) != 0) {
            const int error = errno;
            throw refuse(error == EPERM
                             ? fmt::format("only root may give it to {}; run as root, or leave out "
                                           "its owner",
                                           options.owner)
                             : fmt::format("cannot be given to {}: {}", options.owner,
                                           std::strerror(error)));
        }
    }
    if (::chmod(options.path.c_str(), options.mode) != 0) {
        throw refuse(fmt::format("cannot set its mode: {}", std::strerror(errno)));
    }
}

}  // namespace gpunbd::server
