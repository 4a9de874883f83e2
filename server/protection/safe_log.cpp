#include "server/protection/safe_log.hpp"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace gpunbd::server {

std::optional<std::string> why_log_may_hang(int descriptor) {
    struct stat file {};
    struct statfs system {};
    const bool known = ::fstat(descriptor, &file) == 0 && ::fstatfs(descriptor, &system) == 0;
    if (!known || !S_ISREG(file.st_mode) || system.f_type != TMPFS_MAGIC) return std::nullopt;
    return "its log goes to a file in a tmpfs, whose pages can be swapped out, so that a write "
           "could wait for swap; write the log to the journal, a pipe, or a file on a disk";
}

}  // namespace gpunbd::server
