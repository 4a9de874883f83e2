#include "server/base/path_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

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

}  // namespace

PathLock::PathLock(const std::string& path) : file_(path + ".lock"), fd_(lock(file_)) {}

PathLock::~PathLock() {
    if (fd_.get() >= 0) ::unlink(file_.c_str());
}

}  // namespace gpunbd::server
