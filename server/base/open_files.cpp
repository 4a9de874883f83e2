#include "server/base/open_files.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace gpunbd::server {

namespace {

constexpr std::string_view remedy =
    "raise it by LimitNOFILE= (systemd), --ulimit nofile= (Docker) or ulimit -Hn (a shell)";

}  // namespace

std::optional<std::string> raise_open_files(std::uint64_t needed) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
    if (limit.rlim_cur >= needed) return std::nullopt;
    return fmt::format("up to {} descriptors may be needed, but the limit of open files is {}; {}",
                       needed, limit.rlim_cur, remedy);
}

std::string with_open_files_limit(std::string error) {
    rlimit limit{};
    if (error.find(std::strerror(EMFILE)) == std::string::npos ||
        ::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return error;
    }
    return fmt::format("{}: the limit is {}; {}", error, limit.rlim_cur, remedy);
}

}  // namespace gpunbd::server
