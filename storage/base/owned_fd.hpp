// A file descriptor that is closed by its destructor.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace gpunbd {

class OwnedFd {
 public:
    OwnedFd() = default;  // empty
    explicit OwnedFd(int fd) : fd_(fd) {}
    ~OwnedFd() {
        if (fd_ >= 0) ::close(fd_);
    }
    OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
    OwnedFd& operator=(OwnedFd&& other) noexcept {
        OwnedFd old(std::exchange(fd_, other.release()));
        return *this;
    }
    OwnedFd(const OwnedFd&) = delete;
    OwnedFd& operator=(const OwnedFd&) = delete;

    // Duplicates the descriptor with close-on-exec. Returns an empty one and sets errno on failure.
    static OwnedFd copy_of(int fd) { return OwnedFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }
    static OwnedFd copy_of(const OwnedFd& fd) { return copy_of(fd.fd_); }

    explicit operator bool() const { return fd_ >= 0; }
    int get() const { return fd_; }  // -1: empty
    [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
    int fd_ = -1;
};

}  // namespace gpunbd
