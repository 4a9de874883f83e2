#include "server/tools/status/subcommand.hpp"

#include "config/command_line/store.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/tools/status/status_command.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view watch_manual = R"(Print the state again each second until interrupted.
On a terminal, clear the screen first.
If the server ends, wait for it to return.)";

}  // namespace

StatusCommand::StatusCommand()
    : Command(
          {.name = "status",
           .called = "stat stats show metrics state",
           .brief = "Show what a server has, and what it has done",
           .usage = R"(Usage: gpunbd status [--socket PATH | --url URL [--token FILE]] [--json]
                     [--watch]
)",
           .about =
               R"(Asks the running server for its devices and their memory, its exports with
their clients, requests and errors, and for what takes long. Without --socket
and --url it is the only server of this user, or of the system; where there are
several, they are listed.
)",
           .groups = {{"Flags",
                       status::server_flags(settings.server,
                                            {{.name = "--json",
                                              .brief = "Print JSON instead of tables",
                                              .more = ", as the server answers /api/v1/status.",
                                              .called = "--format --output",
                                              .store = into(settings.json)},
                                             {.name = "--watch",
                                              .brief = "Print it again each second",
                                              .more = ", until it is interrupted.",
                                              .called = "--follow --repeat --interval -w -f",
                                              .manual = watch_manual,
                                              .store = into(settings.watch)}})}},
           .examples = R"(  gpunbd status
  gpunbd status --watch --socket /run/gpunbd/admin-4711.sock
  gpunbd status --json --url http://127.0.0.1:9809
)",
           .ending =
               R"(Exit codes: 0 done; 1 no server answers, or there are several; 2 wrong usage.
See also: gpunbd(8)
)",
           .synopsis = R"(.Nm
.Cm status
.Op Fl -socket Ar path | Fl -url Ar url Op Fl -token Ar file
.Op Fl -json
.Op Fl -watch
)",
           .manual =
               R"(.It Cm status Oo Fl -socket Ar path | Fl -url Ar url Oo Fl -token Ar file Oc Oc Oo Fl -json Oc Op Fl -watch
Ask a running server for what it has and has done: its devices and their memory; its exports with their
size, what is used of it, their clients, requests, bytes and errors; and how far it is with what takes long.
.Pp
The server is the one at
.Ar path
or
.Ar url ;
else the only one that answers on a socket
.Pa admin-PID.sock
in the folders that
.Fl -admin-socket
names, and in
.Pa /run/gpunbd .
Where there are several, they are listed.
Over a Unix socket only a server of this user, or of root, is asked; root asks all.
What it tells is not trusted: control characters in names, and the like, are shown as question marks.
)"}) {}

void StatusCommand::check() { status::check_selection(settings.server); }

int StatusCommand::run(const Commands&) {
    return status::run_status(settings, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
