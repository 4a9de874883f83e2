#include "server/net/credentials/private_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "config/unreadable.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

namespace {

constexpr off_t max_size = 16 << 20;  // bytes
constexpr mode_t for_others = 0007;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw std::runtime_error(fmt::format("{}: {}", path, why));
}

}  // namespace

SecretBytes read_private_file(const std::string& path, std::string_view remedy) {
    const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (file.get() < 0) {
        refuse(path, "cannot be read: " + config::why_unreadable(path, errno, remedy));
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) refuse(path, std::strerror(errno));
    if (!S_ISREG(status.st_mode)) refuse(path, "is not a regular file");
    if ((status.st_mode & for_others) != 0) {
        refuse(path, fmt::format("contains a secret, and all users may open it (mode {:04o}); run: "
                                 "chmod o= {}",
                                 status.st_mode & 07777, path));
    }
    if (status.st_size > max_size) refuse(path, "is longer than 16 MiB");
    SecretBytes bytes(static_cast<std::size_t>(status.st_size));
    std::size_t filled = 0;
    while (filled != bytes.size()) {
        const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    bytes.resize(filled);
    // Editors of other systems put it before the text.
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (std::string_view(bytes.data(), bytes.size()).starts_with(byte_order_mark)) {
        bytes.erase(bytes.begin(), bytes.begin() + byte_order_mark.size());
    }
    return bytes;
}

}  // namespace gpunbd::server
