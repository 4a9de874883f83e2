#include "server/protection/io_flusher.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstring>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace gpunbd::server {

std::optional<std::string> become_io_flusher() {
    if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0) return std::nullopt;
    if (errno == EINVAL) {
        return "the kernel does not support I/O flushers (PR_SET_IO_FLUSHER); use Linux 5.6 or "
               "later";
    }
    return fmt::format(
        "the kernel does not take it for an I/O flusher (PR_SET_IO_FLUSHER: {}); give it "
        "CAP_SYS_RESOURCE (AmbientCapabilities= of systemd, --cap-add SYS_RESOURCE of Docker)",
        std::strerror(errno));
}

}  // namespace gpunbd::server
