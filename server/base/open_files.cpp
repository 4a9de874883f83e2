#include "server/base/open_files.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

namespace gpunbd::server {

std::optional<std::string> raise_open_files(std::uint64_t needed) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
    if (limit.rlim_cur >= needed) return std::nullopt;
    return fmt::format(
        "up to {} descriptors may be needed, but the limit of open files is {}; raise it by "
        "LimitNOFILE= (systemd), --ulimit nofile= (Docker) or ulimit -Hn (a shell)",
        needed, limit.rlim_cur);
}

}  // namespace gpunbd::server
