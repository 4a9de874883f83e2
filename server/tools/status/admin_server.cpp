#include "server/tools/status/admin_server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "config/command_line/store.hpp"
#include "config/nbd_target.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "server/net/credentials/private_file.hpp"
#include "server/tools/status/sanitized_text.hpp"

namespace gpunbd::status {

namespace {

constexpr std::string_view url_details =
    R"(HTTPS is not supported: use a Unix socket or a tunnel.)";

using config::into;

// HOST[:PORT]; an IPv6 address is in brackets.
config::rules::Checked<ServerSelection::Url> parse_host_and_port(std::string_view text) {
    ServerSelection::Url out{.host = {}, .port = "80"};
    const bool brackets = text.starts_with('[');
    const std::size_t end = brackets ? text.find(']') : text.find(':');
    if (brackets && end == std::string_view::npos)
        return config::rules::Wrong{"the [ has no matching ]"};
    const std::string_view host = text.substr(0, end).substr(brackets ? 1 : 0);
    std::string_view rest = end == std::string_view::npos ? "" : text.substr(end);
    if (brackets && !rest.empty()) rest.remove_prefix(1);
    if (!rest.empty()) {
        const auto port =
            rest[0] == ':'
                ? config::rules::port(rest.substr(1))
                : config::rules::Wrong{fmt::format("{} follows the host; write :PORT there",
                                                   config::in_quotes(rest))};
        if (const auto* wrong = std::get_if<config::rules::Wrong>(&port)) {
            return *wrong;
        }
        out.port = rest.substr(1);
    }
    const auto checked = config::rules::host_name(host);
    if (const auto* wrong = std::get_if<config::rules::Wrong>(&checked)) {
        return *wrong;
    }
    out.host = host;
    return out;
}

config::rules::Checked<ServerSelection::Url> parse_url(std::string_view url) {
    constexpr std::string_view scheme = "http://";
    if (url.starts_with("https://")) {
        return config::rules::Wrong{
            "https is not supported; use --socket on the server's machine, or --url http:// "
            "through a tunnel such as ssh -L"};
    }
    if (!url.starts_with(scheme)) {
        return config::rules::Wrong{
            fmt::format("{} is not a URL; write for example --url http://127.0.0.1:9809",
                        config::in_quotes(url))};
    }
    url.remove_prefix(scheme.size());
    if (url.ends_with('/')) url.remove_suffix(1);
    return parse_host_and_port(url);
}

constexpr std::chrono::seconds probe_patience{2};
constexpr std::string_view socket_start = "admin-";
constexpr std::string_view socket_end = ".sock";

// Accepts a single line without characters that could end the HTTP header.
Expected<std::string, Failure> token_in(const std::string& path) {
    std::string token;
    try {
        const server::SecretBytes bytes = server::read_private_file(
            path, "copy the server's token there, which its admin.tcp.token names");
        token.assign(bytes.begin(), bytes.end());
    } catch (const std::runtime_error& error) {
        return Failure{error.what()};
    }
    while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
    const bool good = !token.empty() && std::all_of(token.begin(), token.end(), [](char each) {
        return each > ' ' && each < '\x7f';
    });
    if (good) return success(std::move(token));
    return Failure{
        fmt::format("{}: is not a token; write one line of printable ASCII without spaces", path)};
}

Expected<AdminServer, Failure> tcp_server(const ServerSelection& selection) {
    config::NbdTarget target;
    target.host = selection.url->host;
    target.port = selection.url->port;
    AdminServer out;
    if (selection.token) {
        Expected<std::string, Failure> token = token_in(*selection.token);
        if (!token) return std::move(token).error();
        out.token = std::move(*token);
    }
    Expected<client::Address, Failure> address = client::resolve(target);
    if (!address) return std::move(address).error();
    out.address = std::move(*address);
    out.host = out.address.text;
    return out;
}

// The number in admin-PID.sock; empty for any other name.
std::string pid_in(const std::string& name) {
    if (!name.starts_with(socket_start) || !name.ends_with(socket_end)) return {};
    const std::string pid =
        name.substr(socket_start.size(), name.size() - socket_start.size() - socket_end.size());
    const bool number = !pid.empty() && std::all_of(pid.begin(), pid.end(), [](char each) {
        return each >= '0' && each <= '9';
    });
    return number ? pid : std::string{};
}

void search_folder(const std::string& folder, FoundServers& found) {
    std::error_code error;
    for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end;
         each.increment(error)) {
        const std::string path = each->path().string();
        const std::string pid = pid_in(each->path().filename().string());
        if (pid.empty() || path.size() > config::rules::max_unix_path) continue;
        if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0 && errno == EACCES) {
            found.closed.push_back(path);
            continue;
        }
        Expected<AdminServer, Failure> server = server_at(path);
        if (!server) continue;  // no path of a socket
        const Expected<OwnedFd, Failure> called =
            call(*server, client::Clock::now() + probe_patience);
        if (!called) {
            found.silent.push_back(called.error().text);
        } else {
            found.servers.push_back(std::move(*server));
            found.pids.push_back(pid);
        }
    }
    if (error == std::errc::permission_denied) found.closed.push_back(folder);
}

bool is_anothers(int fd) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return true;
    return peer.uid != 0 && peer.uid != ::geteuid() && ::geteuid() != 0;
}

}  // namespace

std::vector<config::Flag> server_flags(ServerSelection& server, std::vector<config::Flag> more) {
    std::vector<config::Flag> out{{.name = "--socket",
                                   .takes = "PATH",
                                   .example = "/run/gpunbd/admin-4711.sock",
                                   .brief = "Admin socket of the server",
                                   .more = ".",
                                   .called = "--admin-socket --unix --path",
                                   .store = into(server.socket, config::rules::unix_path)},
                                  {.name = "--url",
                                   .takes = "URL",
                                   .example = "http://127.0.0.1:9809",
                                   .brief = "Admin endpoint of the server over TCP",
                                   .more = ": http://HOST:PORT.",
                                   .called = "--host --address --server --uri",
                                   .excludes = {"--socket"},
                                   .why_not = "both name the server",
                                   .details = url_details,
                                   .store = into(server.url, parse_url)},
                                  {.name = "--token",
                                   .takes = config::file_argument,
                                   .example = "/etc/gpunbd/admin.token",
                                   .brief = "With --url: the token of the endpoint",
                                   .more = ", in a file that only its owner and group can read.",
                                   .called = "--bearer --password --key",
                                   .needs = "--url",
                                   .store = into(server.token, config::rules::file_path)}};
    out.insert(out.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
    return out;
}

Expected<AdminServer, Failure> server_at(const std::string& path) {
    config::NbdTarget target;
    target.socket = path;
    Expected<client::Address, Failure> address = client::resolve(target);
    if (!address) return std::move(address).error();
    return AdminServer{.address = std::move(*address), .host = "localhost", .token = {}};
}

FoundServers find_servers(const std::vector<std::string>& folders) {
    FoundServers found;
    for (const std::string& folder : folders) search_folder(folder, found);
    return found;
}

Failure none_found(const FoundServers& found, const std::vector<std::string>& folders) {
    if (!found.closed.empty()) {
        return Failure{fmt::format(
            "a server may run, but this user may not open {}; run this as the server's user, or as "
            "root, or name another server with --socket PATH or --url",
            sanitized(fmt::format("{}", fmt::join(found.closed, ", "))))};
    }
    return Failure{
        fmt::format("no server was found in {}{}{}; start one with 'gpunbd serve', or name one "
                    "with --socket PATH or --url",
                    sanitized(fmt::format("{}", fmt::join(folders, ", "))),
                    found.silent.empty() ? "" : ": ", fmt::join(found.silent, "; "))};
}

Failure too_many(const FoundServers& found) {
    std::string list;
    for (std::size_t i = 0; i != found.servers.size(); ++i) {
        list += fmt::format("{}{} (pid {})", i == 0 ? "" : ", ",
                            sanitized(found.servers[i].address.text), found.pids[i]);
    }
    return Failure{fmt::format("{} servers run: {}; choose one with --socket PATH",
                               found.servers.size(), list)};
}

Expected<AdminServer, Failure> find_server(const ServerSelection& selection,
                                           const std::vector<std::string>& folders) {
    if (selection.socket) return server_at(*selection.socket);
    if (selection.url) return tcp_server(selection);
    FoundServers found = find_servers(folders);
    if (found.servers.size() == 1) return std::move(found.servers[0]);
    if (!found.servers.empty()) return too_many(found);
    return none_found(found, folders);
}

Expected<OwnedFd, Failure> call(const AdminServer& server, client::Deadline until) {
    Expected<OwnedFd, Failure> called = client::dial(server.address, until);
    if (!called) return called;
    const bool local = server.address.addresses[0].storage.ss_family == AF_UNIX;
    if (!local || !is_anothers(called->get())) return called;
    return Failure{
        fmt::format("{}: the server belongs to another user; run this as that user, or as root",
                    server.address.text)};
}

}  // namespace gpunbd::status
