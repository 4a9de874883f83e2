#include "server/tools/status/nbd_socket.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "server/tools/status/http_call.hpp"
#include "server/tools/status/sanitized_text.hpp"

namespace gpunbd::status {
namespace {

constexpr std::chrono::seconds search_patience{2};

// Zero if the server runs in another process namespace.
pid_t listening_process(int connection) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return 0;
    return peer.pid;
}

// The numbers in the links "socket:[NUMBER]" to the open descriptors of a process.
std::set<std::string> sockets_of(pid_t pid) {
    std::set<std::string> out;
    std::error_code error;
    for (std::filesystem::directory_iterator each(fmt::format("/proc/{}/fd", pid), error), end;
         !error && each != end; each.increment(error)) {
        std::error_code gone;
        const std::string link = std::filesystem::read_symlink(each->path(), gone).string();
        constexpr std::string_view start = "socket:[";
        if (!link.starts_with(start) || !link.ends_with(']')) continue;
        out.insert(link.substr(start.size(), link.size() - start.size() - 1));
    }
    return out;
}

// The paths of the Unix sockets on which a process listens.
std::vector<std::string> listeners_of(pid_t pid) {
    const std::set<std::string> its = sockets_of(pid);
    std::vector<std::string> out;
    std::ifstream table(fmt::format("/proc/{}/net/unix", pid));
    for (std::string line; std::getline(table, line);) {
        // "ADDRESS: REFERENCES PROTOCOL FLAGS TYPE STATE INODE PATH"
        std::istringstream words(line);
        std::string address, references, protocol, flags, type, state, inode, path;
        words >> address >> references >> protocol >> flags >> type >> state >> inode >> std::ws;
        std::getline(words, path);
        constexpr std::string_view listening = "00010000";  // __SO_ACCEPTCON
        if (flags == listening && path.starts_with('/') && its.contains(inode)) {
            out.push_back(path);
        }
    }
    return out;
}

bool is_admin_socket(const std::string& path, client::Deadline until) {
    const Expected<AdminServer, Failure> server = server_at(path);
    if (!server) return false;
    const Expected<HttpAnswer, Failure> answer =
        exchange(*server, {.target = "/api/v1/access"}, until);
    return answer && answer->complete() && answer->code() == 200;
}

std::optional<std::string> admin_socket_of(pid_t pid, client::Deadline until) {
    if (pid <= 0) return std::nullopt;
    until = std::min(until, client::Clock::now() + search_patience);
    for (const std::string& path : listeners_of(pid)) {
        if (is_admin_socket(path, until)) return path;
    }
    return std::nullopt;
}

}  // namespace

Failure answered_by_nbd(const AdminServer& server, int connection, client::Deadline until) {
    const std::string where = sanitized(server.address.text);
    if (server.address.addresses[0].storage.ss_family != AF_UNIX) {
        return {fmt::format("{}: serves NBD clients; name the server's admin endpoint (admin.tcp)",
                            where)};
    }
    if (const auto admin = admin_socket_of(listening_process(connection), until)) {
        return {
            fmt::format("{}: is a socket for NBD clients; the admin socket of this server is {}",
                        where, sanitized(*admin))};
    }
    return {fmt::format(
        "{}: is a socket for NBD clients, and no admin socket of its server was found; name it by "
        "the server's --admin-socket or admin.socket",
        where)};
}

}  // namespace gpunbd::status
