#include "server/net/accept_failures.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace gpunbd::server {

namespace {

std::string_view remedy_of(int error) {
    switch (error) {
        case EMFILE:
            return "; lower limits.connections, or raise the limit of open files by LimitNOFILE= "
                   "(systemd), --ulimit nofile= (Docker) or ulimit -Hn (a shell)";
        case ENFILE:
            return "; raise the machine's limit of open files: sysctl fs.file-max";
        default:
            return {};
    }
}

}  // namespace

std::optional<std::string> AcceptFailures::text(int error, Clock::time_point now) {
    if (logged_at_ && now - *logged_at_ < interval) {
        ++omitted_;
        return std::nullopt;
    }
    logged_at_ = now;
    const std::uint64_t omitted = std::exchange(omitted_, 0);
    return fmt::format(
        "cannot accept clients, which wait: {}{}{}", std::strerror(error),
        omitted == 0 ? "" : fmt::format(" ({} more times since the last line)", omitted),
        remedy_of(error));
}

}  // namespace gpunbd::server
