#include "server/tools/status/subcommand.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "config/command_line/store.hpp"
#include "server/base/process.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/snapshot.hpp"
#include "server/tools/status/status_text.hpp"

namespace gpunbd::status {

namespace {

constexpr std::chrono::seconds status_patience{10};
constexpr std::chrono::seconds between_two{1};

// Returns the text to print. With --json that is the server's response.
Expected<std::string, Failure> fetch(const StatusOptions& command,
                                     const std::vector<std::string>& folders) {
    const Expected<AdminServer, Failure> server = find_server(command.server, folders);
    if (!server) return server.error();
    Expected<std::string, Failure> body =
        get(*server, {.target = "/api/v1/status"}, client::Clock::now() + status_patience);
    if (!body) return body;
    const Expected<Snapshot, Failure> status = read_status(*body);
    if (!status) {
        return Failure{server->address.text + ": " + status.error().text};
    }
    if (!command.json) return success(status_text(*status));
    return success(body->ends_with('\n') ? *body : *body + '\n');
}

void print_page(const std::string& text, bool again) {
    // Moves the cursor home and clears the rest afterwards, which avoids flicker.
    if (again && ::isatty(STDOUT_FILENO) == 1) {
        fmt::print("\x1b[H\x1b[2J{}", text);
    } else {
        fmt::print("{}", text);
    }
    std::fflush(stdout);
}

}  // namespace

int run_status(const StatusOptions& command, const std::vector<std::string>& folders) {
    for (bool answered = false;; answered = true) {
        const Expected<std::string, Failure> text = fetch(command, folders);
        if (!text) {
            server::report_failure("status", with_remedy(text.error()), command.json,
                                   server::exit_failure);
            if (!answered) return server::exit_failure;
        } else {
            print_page(*text, command.watch && !command.json);
        }
        if (!command.watch) return 0;
        std::this_thread::sleep_for(between_two);
    }
}

}  // namespace gpunbd::status

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view watch_details = R"(On a terminal, it clears the screen first.
If the server ends, it waits for the server to return.)";

}  // namespace

StatusCommand::StatusCommand()
    : Command(
          {.name = "status",
           .called = "stat stats show metrics state",
           .brief = "Show the state of a server",
           .usage = R"(Usage: gpunbd status [--socket PATH | --url URL [--token FILE]] [--json]
                     [--watch]
)",
           .about =
               R"(Prints the devices of a running server with their memory, the exports with their
clients, requests and errors, and the progress of long operations. Without
--socket and --url it uses the only server of this user or of the system, and
lists the servers if several run.
)",
           .groups = {{"Flags",
                       status::server_flags(settings.server,
                                            {{.name = "--json",
                                              .brief = "Print JSON instead of tables",
                                              .more = ", as in the response to /api/v1/status.",
                                              .called = "--format --output",
                                              .store = into(settings.json)},
                                             {.name = "--watch",
                                              .brief = "Print the state again each second",
                                              .more = ", until it is interrupted.",
                                              .called = "--follow --repeat --interval -w -f",
                                              .details = watch_details,
                                              .store = into(settings.watch)}})}},
           .examples = R"(  gpunbd status
  gpunbd status --watch --socket /run/gpunbd/admin-4711.sock
  gpunbd status --json --url http://127.0.0.1:9809
)",
           .ending =
               R"(Exit codes: 0 done; 1 no server answers, or several run; 2 wrong usage.
See also: gpunbd(8)
)",
           .manual =
               R"(Print the state of a running server: its devices with their memory; its exports with their size, memory in use, clients,
requests, bytes and errors; and the progress of long operations.
.Pp
The server is the one at
.Ar path
or
.Ar url .
The default is the only one that answers on a socket
.Pa admin-PID.sock
in the folders that
.Fl -admin-socket
names, and in
.Pa /run/gpunbd .
If several servers run, they are listed.
Over a Unix socket, only servers of this user and of root are used; root can use all.
The response is not trusted: control characters in names are shown as question marks.
)"}) {}

int StatusCommand::run(const Commands&) {
    return status::run_status(settings, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
