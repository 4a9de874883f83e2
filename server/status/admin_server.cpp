#include "server/status/admin_server.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "config/rules.hpp"
#include "server/credentials/private_file.hpp"
#include "server/status/harmless_text.hpp"

namespace gpunbd::status {
namespace {

constexpr std::chrono::seconds probe_patience{2};
constexpr std::string_view socket_start = "admin-";
constexpr std::string_view socket_end = ".sock";

Or<AdminServer> unix_server(const std::string& path) {
    client::NbdTarget target;
    target.socket = path;
    Or<client::Address> address = client::look_up(target);
    if (auto* const failed = std::get_if<Failure>(&address)) return std::move(*failed);
    return AdminServer{
        .address = std::move(std::get<client::Address>(address)), .host = "localhost", .token = {}};
}

// One line; nothing in it that ends the header that it will stand in.
Or<std::string> token_in(const std::string& path) {
    std::string token;
    try {
        const server::SecretBytes bytes = server::read_private_file(path);
        token.assign(bytes.begin(), bytes.end());
    } catch (const std::runtime_error& error) {
        return Failure{error.what()};
    }
    while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
    const bool good = !token.empty() && std::all_of(token.begin(), token.end(), [](char each) {
        return each > ' ' && each < '\x7f';
    });
    if (good) return token;
    return Failure{
        fmt::format("{}: is no token: one line of printable ASCII without spaces", path)};
}

Or<AdminServer> tcp_server(const config::AskedServer& asked) {
    client::NbdTarget target;
    target.host = asked.url->host;
    target.port = asked.url->port;
    AdminServer out;
    if (asked.token) {
        Or<std::string> token = token_in(*asked.token);
        if (auto* const failed = std::get_if<Failure>(&token)) return std::move(*failed);
        out.token = std::move(std::get<std::string>(token));
    }
    Or<client::Address> address = client::look_up(target);
    if (auto* const failed = std::get_if<Failure>(&address)) return std::move(*failed);
    out.address = std::move(std::get<client::Address>(address));
    out.host = out.address.text;
    return out;
}

// The number of admin-PID.sock; empty: it is no such name.
std::string pid_in(const std::string& name) {
    if (!name.starts_with(socket_start) || !name.ends_with(socket_end)) return {};
    const std::string pid =
        name.substr(socket_start.size(), name.size() - socket_start.size() - socket_end.size());
    const bool number = !pid.empty() && std::all_of(pid.begin(), pid.end(), [](char each) {
        return each >= '0' && each <= '9';
    });
    return number ? pid : std::string{};
}

struct FoundSockets {
    std::vector<std::string> live;    // paths
    std::vector<std::string> pids;    // of those
    std::vector<std::string> silent;  // why others do not answer
};

void look_into(const std::string& folder, FoundSockets& found) {
    std::error_code error;
    for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end;
         each.increment(error)) {
        const std::string path = each->path().string();
        const std::string pid = pid_in(each->path().filename().string());
        if (pid.empty() || path.size() > config::rules::max_unix_path) continue;
        const Or<AdminServer> server = unix_server(path);
        const Or<server::OwnedFd> called =
            call(std::get<AdminServer>(server), client::Clock::now() + probe_patience);
        if (const auto* const failed = std::get_if<Failure>(&called)) {
            found.silent.push_back(failed->text);
        } else {
            found.live.push_back(path);
            found.pids.push_back(pid);
        }
    }
}

Or<AdminServer> only_server(const std::vector<std::string>& folders) {
    FoundSockets found;
    for (const std::string& folder : folders) look_into(folder, found);
    if (found.live.size() == 1) return unix_server(found.live[0]);
    if (found.live.empty()) {
        return Failure{fmt::format(
            "no server is found{}{}; start one with 'gpunbd serve', or name one with --socket PATH "
            "or --url",
            found.silent.empty() ? "" : ": ", fmt::join(found.silent, "; "))};
    }
    std::string list;
    for (std::size_t i = 0; i != found.live.size(); ++i) {
        list += fmt::format("{}{} (pid {})", i == 0 ? "" : ", ", harmless(found.live[i]),
                            found.pids[i]);
    }
    return Failure{fmt::format("there are {} servers: {}; choose one with --socket PATH",
                               found.live.size(), list)};
}

bool is_anothers(int fd) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return true;
    return peer.uid != 0 && peer.uid != ::geteuid() && ::geteuid() != 0;
}

}  // namespace

Or<AdminServer> find_server(const config::AskedServer& asked,
                            const std::vector<std::string>& folders) {
    if (asked.socket) return unix_server(*asked.socket);
    if (asked.url) return tcp_server(asked);
    return only_server(folders);
}

Or<server::OwnedFd> call(const AdminServer& server, client::Deadline until) {
    Or<server::OwnedFd> called = client::dial(server.address, until);
    const auto* const fd = std::get_if<server::OwnedFd>(&called);
    if (fd == nullptr) return called;
    const bool local = server.address.places[0].where.ss_family == AF_UNIX;
    if (!local || !is_anothers(fd->get())) return called;
    return Failure{fmt::format("{}: another user's server is there", server.address.text)};
}

}  // namespace gpunbd::status
