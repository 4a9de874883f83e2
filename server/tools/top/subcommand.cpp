#include "server/tools/top/subcommand.hpp"

#include "config/command_line/store.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/tools/status/top_command.hpp"

namespace gpunbd::tools {

using namespace config;

TopCommand::TopCommand()
    : Command(
          {.name = "top",
           .called = "htop monitor live dashboard",
           .brief = "Show a server's activity, updated every second",
           .usage = "Usage: gpunbd top [--socket PATH | --url URL [--token FILE]]\n",
           .about =
               R"(Shows devices with their memory by export; exports with rates, latencies and
clients; and the busiest clients. Reconnects if the server is restarted. Keys: q
quits, arrows, PgUp and PgDn select, s changes the sort order, e shows a single
export, ? shows help. If standard output is not a terminal, it prints a page
each second.
)",
           .groups = {{"Flags", status::server_flags(server, {})}},
           .examples = R"(  gpunbd top
  gpunbd top --url http://127.0.0.1:9809 --token /etc/gpunbd/admin.token
)",
           .ending =
               R"(Exit codes: 0 ended by a key or a signal; 1 no server answers, or several run;
2 wrong usage.
See also: gpunbd(8)
)",
           .manual =
               R"(Show the activity of a server on a full-screen page that is updated every second.
It shows the server and slow operations; each device with a bar of its memory, in which letters stand for exports; each
export with its memory in use, clients, rates, latencies, requests in flight, and requests that have failed since the
start of the server; and the busiest clients.
Rates and latencies are those of the last second.
The latencies are the median and the 99th percentile of reads or writes, whichever is slower, measured in the server.
A client that does not receive its replies is
.Li STALLED .
Keys:
.Ic q
quits, arrows,
.Ic PgUp
and
.Ic PgDn
select an export,
.Ic s
changes the sort order,
.Ic e
shows a single export and its clients, and
.Ic \&?
shows help.
.Dv SIGINT
and
.Dv SIGTERM
quit like
.Ic q
and restore the terminal.
.Pp
The server is selected as by
.Cm status .
If the server is not reachable,
.Cm top
reconnects until it is; meanwhile the page shows the last known state and its age.
If standard output is not a terminal, or
.Ev TERM
is not set or is
.Li dumb ,
it prints a page of 80 columns and any length each second.
.Ev NO_COLOR
disables colours.
)"}) {}

int TopCommand::run(const Commands&) {
    return status::run_top(server, gpunbd::server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
