#include "server/tools/status/subcommand.hpp"

#include "config/command_line/store.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/tools/status/status_command.hpp"

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
