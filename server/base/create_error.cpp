#include "server/base/create_error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpunbd::server {

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string create_error(const std::string& path, int error) {
    const std::string folder = folder_of(path);
    switch (error) {
        case ENOENT:
            return fmt::format("the folder {} does not exist; create it, or choose another path",
                               folder);
        case ENOTDIR:
            return fmt::format("{} is not a folder; choose another path", folder);
        case EACCES:
        case EPERM:
            return fmt::format(
                "uid {} may not create files in {}; choose another path, or grant write permission",
                ::geteuid(), folder);
        case EROFS:
            return fmt::format("{} is on a read-only file system; choose another path", folder);
        case ENOSPC:
        case EDQUOT:
            return fmt::format("no space is left in {}; free some space, or choose another path",
                               folder);
        case ENOLCK:
            return fmt::format("{} is on a file system without locks (flock); choose another path",
                               folder);
        default:
            return fmt::format("cannot be created: {}", std::strerror(error));
    }
}

std::string cannot_create(const std::string& path) {
    // The trailing slash gives ENOTDIR if a file has the name of the folder.
    const std::string folder = folder_of(path) + "/";
    if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
    return create_error(path, errno);
}

}  // namespace gpunbd::server
