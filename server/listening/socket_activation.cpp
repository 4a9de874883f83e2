#include "server/listening/socket_activation.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace gpunbd::server {

namespace {

constexpr int first_inherited = 3;  // SD_LISTEN_FDS_START
constexpr long max_inherited = 64;

std::optional<long> number_from_environment(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    const std::string_view digits(text);
    long value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return value;
}

}  // namespace

std::vector<int> take_inherited_sockets() {
    std::vector<int> sockets;
    const auto pid = number_from_environment("LISTEN_PID");
    const auto count = number_from_environment("LISTEN_FDS");
    if (pid == ::getpid() && count && *count > 0 && *count <= max_inherited) {
        for (int fd = first_inherited; fd != first_inherited + *count; ++fd) {
            ::fcntl(fd, F_SETFD, FD_CLOEXEC);
            sockets.push_back(fd);
        }
    }
    ::unsetenv("LISTEN_PID");
    ::unsetenv("LISTEN_FDS");
    ::unsetenv("LISTEN_FDNAMES");
    return sockets;
}

}  // namespace gpunbd::server
