#include "server/process/kept_list.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "config/aligned_table.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/contents/kept_answer.hpp"
#include "server/contents/local_time_text.hpp"
#include "server/listening/owned_fd.hpp"
#include "server/process/keeping_path.hpp"

namespace gpunbd::server {

namespace {

namespace json = boost::json;

constexpr std::size_t max_kept_answer = std::size_t{256} << 20;  // bytes
constexpr timeval kept_patience{.tv_sec = 60, .tv_usec = 0};     // for a server that makes exports

[[noreturn]] void refuse(const std::string& path, int error) {
    throw std::runtime_error(fmt::format("{}: {}", path, std::strerror(error)));
}

// Nobody else's answer is shown for this user's server's.
void check_owner(int fd, const std::string& path) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) refuse(path, errno);
    if (peer.uid == 0 || peer.uid == ::geteuid() || ::geteuid() == 0) return;
    throw std::runtime_error(fmt::format("{}: another user's server is there", path));
}

OwnedFd connected_to(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) refuse(path, ENAMETOOLONG);
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) refuse(path, errno);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kept_patience, sizeof kept_patience);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kept_patience, sizeof kept_patience);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        refuse(path, errno);
    }
    check_owner(fd.get(), path);
    return fd;
}

OwnedFd connected_to_any(const std::vector<std::string>& paths) {
    std::string reasons;
    for (const std::string& path : paths) {
        try {
            return connected_to(path);
        } catch (const std::runtime_error& error) {
            reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", error.what());
        }
    }
    throw std::runtime_error(
        fmt::format("no server that keeps contents can be asked: {}", reasons));
}

std::string asked(int fd, const std::string& request) {
    if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size())) {
        throw std::runtime_error(fmt::format("the server hung up: {}", std::strerror(errno)));
    }
    std::string answer;
    std::array<char, 65536> piece{};
    for (;;) {
        const ssize_t got = ::recv(fd, piece.data(), piece.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            throw std::runtime_error(
                fmt::format("the server does not answer: {}", std::strerror(errno)));
        }
        if (got == 0) break;
        answer.append(piece.data(), static_cast<std::size_t>(got));
        if (answer.size() > max_kept_answer) throw std::runtime_error("the answer has no end");
    }
    if (!answer.empty()) return answer;
    throw std::runtime_error("the server hung up without an answer; its log may say why");
}

json::object parsed(std::string_view text) {
    boost::system::error_code error;
    json::value value = json::parse(text, error);
    if (error || !value.is_object()) throw std::runtime_error("the server's answer is no JSON");
    json::object& object = value.get_object();
    if (const json::string* const why =
            object.contains("error") ? object["error"].if_string() : nullptr) {
        throw std::runtime_error(std::string(*why));
    }
    return std::move(object);
}

std::string text_of(const json::object& one, std::string_view key) {
    const json::value* const value = one.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : "-";
}

std::optional<std::int64_t> number_of(const json::object& one, std::string_view key) {
    const json::value* const value = one.if_contains(key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    boost::system::error_code error;
    const auto number = value->to_number<std::int64_t>(error);
    return error ? std::nullopt : std::optional(number);
}

std::string size_of(const json::object& one, std::string_view key) {
    const auto bytes = number_of(one, key);
    return bytes && *bytes >= 0 ? config::human_size(static_cast<std::uint64_t>(*bytes)) : "-";
}

std::string time_of(const json::object& one, std::string_view key) {
    const auto seconds = number_of(one, key);
    return seconds ? local_time_text(*seconds) : "-";
}

}  // namespace

std::string kept_table(std::string_view answer) {
    json::object object = parsed(answer);
    const json::value* const kept = object.if_contains("kept");
    if (kept == nullptr || !kept->is_array()) throw std::runtime_error("the answer has no list");
    if (kept->get_array().empty()) return "nothing is kept\n";
    std::vector<std::vector<std::string>> rows{
        {"EXPORT", "SIZE", "USED", "DEVICES", "SINCE", "INSTANCE", "STATE"}};
    for (const json::value& each : kept->get_array()) {
        if (!each.is_object()) throw std::runtime_error("the answer has no list");
        const json::object& one = each.get_object();
        rows.push_back({config::in_quotes(text_of(one, "name")), size_of(one, "size"),
                        size_of(one, "used"), text_of(one, "devices"), time_of(one, "made"),
                        text_of(one, "instance"), text_of(one, "state")});
    }
    return config::aligned_table(rows);
}

std::string ask_what_is_kept(const config::KeptCommand& command,
                             const std::optional<std::string>& configured) {
    std::vector<std::string> paths = likely_keeping_paths();
    if (configured) paths = {*configured};
    if (command.socket) paths = {*command.socket};
    const OwnedFd server = connected_to_any(paths);
    if (!command.drop) {
        const std::string answer = asked(server.get(), std::string(kept_list_request) + '\n');
        const std::string table = kept_table(answer);
        return command.json ? answer : table;
    }
    const std::string answer =
        asked(server.get(), std::string(kept_drop_request) + *command.drop + '\n');
    parsed(answer);
    return fmt::format("kept contents {}: ended, and their memory is given back\n",
                       config::in_quotes(*command.drop));
}

}  // namespace gpunbd::server
