#include "server/listening/socket_activation.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

constexpr int first_inherited = 3;  // SD_LISTEN_FDS_START
constexpr int max_inherited = 64;

// A variable that is taken out of the environment.
std::optional<std::string> take_variable(const char* name) {
    const char* const text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    std::string value(text);
    ::unsetenv(name);
    return value;
}

std::optional<std::uint64_t> decimal(const std::string& digits) {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return value;
}

}  // namespace

std::vector<int> take_inherited_sockets() {
    const auto pid_text = take_variable("LISTEN_PID");
    const auto count_text = take_variable("LISTEN_FDS");
    take_variable("LISTEN_FDNAMES");
    if (!pid_text || !count_text) return {};
    const auto pid = decimal(*pid_text);
    if (!pid) {
        throw std::runtime_error(
            fmt::format("LISTEN_PID: {} is not a process id; give that of gpunbd, or unset it",
                        config::in_quotes(*pid_text)));
    }
    if (*pid != static_cast<std::uint64_t>(::getpid())) return {};
    const auto count = decimal(*count_text);
    if (!count || *count == 0) {
        throw std::runtime_error(
            fmt::format("LISTEN_FDS: {} is not a number of sockets; give 1 to {}, or unset it",
                        config::in_quotes(*count_text), max_inherited));
    }
    if (*count > max_inherited) {
        throw std::runtime_error(
            fmt::format("LISTEN_FDS: {} sockets are handed over; at most {} can be used", *count,
                        max_inherited));
    }
    std::vector<int> sockets;
    for (int fd = first_inherited; fd != first_inherited + static_cast<int>(*count); ++fd) {
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        sockets.push_back(fd);
    }
    return sockets;
}

}  // namespace gpunbd::server
