#include "server/protection/oom_score.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace gpunbd::server {

std::optional<std::string> escape_oom_killer() {
    constexpr std::string_view never = "-1000";
    const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    const bool done = file >= 0 && ::write(file, never.data(), never.size()) > 0;
    const int error = errno;
    if (file >= 0) ::close(file);
    if (done) return std::nullopt;
    return fmt::format(
        "the OOM killer may kill it (oom_score_adj: {}); set OOMScoreAdjust={} (systemd) or "
        "--oom-score-adj {} (Docker), or give it CAP_SYS_RESOURCE",
        std::strerror(error), never, never);
}

}  // namespace gpunbd::server
