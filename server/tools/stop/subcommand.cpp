#include "server/tools/stop/subcommand.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "server/base/process.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

namespace {

constexpr std::chrono::seconds connect_patience{10};
constexpr std::chrono::seconds silent_wait{5};  // then a line says what the server may be doing
constexpr std::chrono::hours one_wait{1};

// A descriptor refers to its process even if the process ends and its id is used again.
struct Process {
    pid_t pid = 0;
    OwnedFd handle;
};

struct ServerProcess {
    Process server;
    std::optional<Process> keeper;  // `gpunbd keep`, which ends after its server

    const Process& signalled() const { return keeper ? *keeper : server; }
};

std::string text_of_file(pid_t pid, const char* name) {
    std::ifstream file(fmt::format("/proc/{}/{}", pid, name));
    return {std::istreambuf_iterator<char>(file), {}};
}

// `source` names the pid file or the socket in messages.
Expected<Process, Failure> open_process(pid_t pid, const std::string& source) {
    // The raw system call, because sys/pidfd.h of glibc 2.36 does not compile as C++.
    Process out{.pid = pid, .handle = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
    if (out.handle.get() < 0 && errno == ESRCH) {
        return Failure{fmt::format("{}: process {} has ended", source, pid)};
    }
    if (out.handle.get() < 0) {
        return failure(fmt::format("{}: cannot open process {}", source, pid), errno);
    }
    // The id in an old file may belong to another program now.
    std::string name = text_of_file(pid, "comm");
    if (name.ends_with('\n')) name.pop_back();
    if (name.starts_with("gpunbd")) return out;
    return Failure{fmt::format("{}: process {} is {} and not a gpunbd server", source, pid,
                               config::in_quotes(name))};
}

std::optional<pid_t> parent_of(pid_t pid) {
    const std::string status = text_of_file(pid, "stat");
    // "PID (NAME) STATE PPID ...", where NAME may contain parentheses
    const std::size_t end = status.rfind(") ");
    pid_t parent = 0;
    if (end == std::string::npos || std::sscanf(status.c_str() + end, ") %*c %d", &parent) != 1 ||
        parent <= 0) {
        return std::nullopt;
    }
    return parent;
}

bool is_keeper(pid_t pid) {
    using namespace std::string_view_literals;
    const std::string arguments = text_of_file(pid, "cmdline");
    const std::size_t first = arguments.find('\0');
    return first != std::string::npos &&
           std::string_view(arguments).substr(first).starts_with("\0keep\0"sv);
}

Expected<ServerProcess, Failure> open_server(pid_t pid, const std::string& source) {
    Expected<Process, Failure> server = open_process(pid, source);
    if (!server) return std::move(server).error();
    ServerProcess out{.server = std::move(*server), .keeper = {}};
    const auto parent = parent_of(pid);
    if (parent && is_keeper(*parent)) {
        Expected<Process, Failure> keeper = open_process(*parent, source);
        if (keeper) out.keeper = *std::move(keeper);
    }
    return out;
}

Expected<ServerProcess, Failure> server_of_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) return failure("--pidfile " + path, errno);
    pid_t pid = 0;
    if (!(file >> pid) || pid <= 0) {
        return Failure{fmt::format("--pidfile {}: contains no process id", path)};
    }
    return open_server(pid, "--pidfile " + path);
}

Expected<ServerProcess, Failure> server_of_socket(const AdminServer& server) {
    const Expected<OwnedFd, Failure> called = call(server, client::Clock::now() + connect_patience);
    if (!called) return called.error();
    // The process that called listen().
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(called->get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
        peer.pid <= 0) {
        return Failure{server.address.text + ": its server runs in a container; stop it there"};
    }
    Expected<ServerProcess, Failure> out = open_server(peer.pid, server.address.text);
    if (out) return out;
    Failure failed = out.error();
    failed.remedy = "after an upgrade, leave --socket out, or name the admin socket";
    return failed;
}

Expected<ServerProcess, Failure> find_process(const StopOptions& command,
                                              const std::vector<std::string>& folders) {
    if (command.pidfile) return server_of_file(*command.pidfile);
    if (command.socket) {
        const Expected<AdminServer, Failure> server = server_at(*command.socket);
        if (!server) return server.error();
        return server_of_socket(*server);
    }
    const FoundServers found = find_servers(folders);
    if (found.servers.size() == 1) return server_of_socket(found.servers[0]);
    if (!found.servers.empty()) return too_many(found);
    return Failure{fmt::format(
        "no server was found in {}{}{}; name one with --socket PATH or --pidfile FILE",
        fmt::join(folders, ", "), found.silent.empty() ? "" : ": ", fmt::join(found.silent, "; "))};
}

bool ends_by(const ServerProcess& process, client::Deadline until) {
    return client::wait_for_socket(process.server.handle.get(), POLLIN, until) &&
           (!process.keeper ||
            client::wait_for_socket(process.keeper->handle.get(), POLLIN, until));
}

// Returns whether the server has ended.
bool wait_for_end(const ServerProcess& process, std::optional<std::chrono::seconds> timeout) {
    const auto begin = client::Clock::now();
    if (ends_by(process, begin + std::min(silent_wait, timeout.value_or(silent_wait)))) return true;
    if (timeout && *timeout <= silent_wait) return false;
    fmt::print(stderr,
               "gpunbd stop: waiting for process {}: it answers requests in flight (limits.drain), "
               "saves exports, or waits for swapoff; a second SIGTERM ends it without these\n",
               process.server.pid);
    if (timeout) return ends_by(process, begin + *timeout);
    while (!ends_by(process, client::Clock::now() + one_wait)) {
    }
    return true;
}

// Returns the id of the process that has ended.
Expected<pid_t, Failure> stop(const StopOptions& command, const std::vector<std::string>& folders) {
    const Expected<ServerProcess, Failure> found = find_process(command, folders);
    if (!found) return found.error();
    const auto& process = *found;
    const pid_t pid = process.server.pid;
    if (::syscall(SYS_pidfd_send_signal, process.signalled().handle.get(), SIGTERM, nullptr, 0) !=
            0 &&
        errno != ESRCH) {
        return failure(fmt::format("cannot send SIGTERM to process {}", pid), errno);
    }
    if (!wait_for_end(process, command.timeout)) {
        return Failure{fmt::format(
            "the server, process {}, has not ended within {} s; it ends later, or at once after "
            "a second SIGTERM",
            pid, command.timeout->count())};
    }
    return pid;
}

}  // namespace

int run_stop(const StopOptions& command, const std::vector<std::string>& folders) {
    const Expected<pid_t, Failure> ended = stop(command, folders);
    if (!ended) {
        return server::report_failure("stop", with_remedy(ended.error()), command.json,
                                      server::exit_failure);
    }
    const pid_t pid = *ended;
    if (command.json) {
        fmt::print("{{\"stopped\":{}}}\n", pid);
    } else {
        fmt::print("the server, process {}, has ended\n", pid);
    }
    return 0;
}

}  // namespace gpunbd::status

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view json_details = R"(The object's
.Va stopped
is the process id.)";

}  // namespace

StopCommand::StopCommand()
    : Command({.name = "stop",
               .called = "end kill quit shutdown terminate",
               .brief = "Stop a server",
               .usage = "Usage: gpunbd stop [--socket PATH | --pidfile FILE] [--timeout SECONDS]\n"
                        "                   [--json]\n",
               .about =
                   R"(Sends SIGTERM to a running server, for example one that was started with
--background, and waits until it has ended. The server answers requests in
flight first. Without --socket and --pidfile it is the only server of this user
or of the system; if several run, they are listed. Stop the packaged service
with 'systemctl stop gpunbd'.
)",
               .groups = {{"Flags",
                           {{.name = "--socket",
                             .takes = "PATH",
                             .example = "/run/gpunbd/admin-4711.sock",
                             .brief = "Unix socket on which the server listens",
                             .more = ", for administration or for NBD.",
                             .called = "--admin-socket --unix --path",
                             .store = into(settings.socket, rules::unix_path)},
                            {.name = "--pidfile",
                             .takes = file_argument,
                             .example = "/run/gpunbd.pid",
                             .brief = "File with its process id",
                             .more = ", as in gpunbd serve --pidfile FILE.",
                             .called = "--pid --pid-file",
                             .excludes = {"--socket"},
                             .why_not = "both name the server",
                             .store = into(settings.pidfile, rules::file_path)},
                            {.name = "--timeout",
                             .takes = "SECONDS",
                             .example = "60",
                             .brief = "Time limit for the wait",
                             .more = ", 0 to 86400; default none.",
                             .called = "--time --wait --deadline",
                             .store = into(settings.timeout, integer_in(0, 86400))},
                            {.name = "--json",
                             .brief = "Print JSON instead of text",
                             .more = ": the id of the process.",
                             .called = "--format --output",
                             .details = json_details,
                             .store = into(settings.json)}}}},
               .examples = R"(  gpunbd stop
  gpunbd stop --socket /run/gpunbd/admin-4711.sock
  gpunbd stop --pidfile /run/gpunbd.pid --timeout 60
)",
               .ending =
                   R"(Exit codes: 0 the server has ended; 1 no server runs, several run, or it has
not ended within the time limit; 2 wrong usage.
See also: gpunbd(8)
)",
               .manual =
                   R"(Send SIGTERM to a running server and wait until its process has ended.
If
.Nm Cm keep
supervises the server, it ends as well, and kept contents are freed.
.Pp
The server is the one that listens on the Unix socket
.Ar path ,
the one whose process id is in
.Ar file ,
or the only one that
.Nm Cm status
finds.
A process that is not gpunbd, as after an old
.Ar file ,
is not stopped.
After 5 s a message describes what the server may be waiting for; see
.Sx SIGNALS .
)"}) {}

int StopCommand::run(const Commands&) {
    return status::run_stop(settings, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
