#include "server/protection/oom_score.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

std::optional<std::string> escape_oom_killer() {
    constexpr std::string_view never = "-1000";
    const OwnedFd file(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    if (file && ::write(file.get(), never.data(), never.size()) > 0) return std::nullopt;
    return fmt::format(
        "the OOM killer may kill it (oom_score_adj: {}); set OOMScoreAdjust={} (systemd) or "
        "--oom-score-adj {} (Docker), or give it CAP_SYS_RESOURCE",
        std::strerror(errno), never, never);
}

}  // namespace gpunbd::server
