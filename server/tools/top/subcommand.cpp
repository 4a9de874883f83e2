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
           .brief = "Watch a server: who does how much, and how fast",
           .usage = "Usage: gpunbd top [--socket PATH | --url URL [--token FILE]]\n",
           .about =
               R"(Fills the terminal, and is new each second: devices with their memory by
export; exports with rates, latencies and clients; the busiest clients. A
server that goes away is waited for. Keys: q ends it, arrows and PgUp, PgDn
move, s sorts by something else, e shows one export alone, ? explains. Where
standard output is no terminal, a page is printed each second.
)",
           .groups = {{"Flags", status::server_flags(server, {})}},
           .examples = R"(  gpunbd top
  gpunbd top --url http://127.0.0.1:9809 --token /etc/gpunbd/admin.token
)",
           .ending = R"(Exit codes: 0 ended by a key or a signal; 1 no server answers, or there are
several; 2 wrong usage.
See also: gpunbd(8)
)",
           .synopsis = R"(.Nm
.Cm top
.Op Fl -socket Ar path | Fl -url Ar url Op Fl -token Ar file
)",
           .manual = R"(.It Cm top Op Fl -socket Ar path | Fl -url Ar url Op Fl -token Ar file
Watch a server on a page that fills the terminal, 80 by 24 or any other, and is new each second.
It shows the server; what takes long; each device with a bar of its memory, in which exports have letters;
each export with what is used of it, clients, rates of the last second, the latencies that half and 99 in 100
of its requests kept to in that second, of reads or writes, whichever is slower, in the server alone, requests
in flight, and requests that failed since the server's start; and the busiest clients.
A client that takes nothing of the answers that wait for it is
.Li STALLED .
Keys:
.Ic q
ends it, arrows,
.Ic PgUp
and
.Ic PgDn
choose an export,
.Ic s
sorts by something else,
.Ic e
shows one export and its clients alone, and
.Ic \&?
explains.
.Dv SIGINT
and
.Dv SIGTERM
end it as
.Ic q
does, with the terminal as it was before.
.Pp
The server is found as by
.Cm status .
One that goes away is called until it is back; meanwhile the page says for how long, and shows what was last
known.
Where standard output is no terminal, or
.Ev TERM
is not set or is
.Li dumb ,
a page of 80 columns is printed each second, as long as it has to be.
Where
.Ev NO_COLOR
is set there are no colours.
)"}) {}

void TopCommand::check() { status::check_selection(server); }

int TopCommand::run(const Commands&) {
    return status::run_top(server, gpunbd::server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
