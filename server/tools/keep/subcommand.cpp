#include "server/tools/keep/subcommand.hpp"

#include <fmt/format.h>

#include <chrono>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "server/base/background.hpp"
#include "server/supervisor/supervisor.hpp"

namespace gpunbd::tools {

using namespace config;

KeepCommand::KeepCommand()
    : Command(
          {.name = "keep",
           .called = "supervise watch respawn",
           .brief = "Start a server again when it dies, and keep what it holds",
           .usage = R"(Usage: gpunbd keep [FLAGS] [--] serve [FLAGS OF SERVE]
)",
           .about =
               R"(Runs that server, and runs it again when it dies, with the file descriptors that
it has left to be kept. Signals are passed on. Under systemd it is not needed:
gpunbd(8) says what to write into the unit.
)",
           .groups = {{"Flags",
                       {{.name = "--max-restarts",
                         .takes = "N",
                         .example = "10",
                         .brief = "Restarts within the time of --within",
                         .more = ", 1 to 10000; default 10. One more ends it all, or comes "
                                 "after a pause while contents are kept.",
                         .called = "--restarts --retries --limit",
                         .store = into(settings.max_restarts, integer_in(1, 10'000))},
                        {.name = "--within",
                         .takes = "SECONDS",
                         .example = "60",
                         .brief = "That time",
                         .more = ", 1 to 86400; default 60.",
                         .called = "--interval --period --time --window",
                         .store = into(settings.within, integer_in(1, 86'400))},
                        {.name = "--max-descriptors",
                         .takes = "N",
                         .example = "16384",
                         .brief = "File descriptors that are kept at most",
                         .more = ", 1 to 100000; default 16384.",
                         .called = "--descriptors --fds --max-fds --store",
                         .store = into(settings.max_descriptors, integer_in(1, 100'000))},
                        {.name = "--swap",
                         .brief = "The machine swaps to what the server serves",
                         .more = ": this process and the server get what keeps them alive while "
                                 "memory is short, from their start on.",
                         .store = into(settings.swap)},
                        {.name = "--background",
                         .brief = "Return once the server is ready",
                         .more = ", or with the status of a failed start, and go on in the "
                                 "background; the log still goes to standard error.",
                         .called = "--fork --daemon --daemonize --detach -d",
                         .store = into(settings.background)}}}},
           .examples = R"(  gpunbd keep -- serve --config /etc/gpunbd.yaml
  gpunbd keep --background -- serve --size 8G --keep 2>>/var/log/gpunbd.log
  gpunbd keep --max-restarts 100 --within 3600 -- serve --size 8G
)",
           .ending =
               R"(Exit codes: 0 or others, as the last server's, or 128+n where signal n ended it;
1 failed itself; 2 wrong usage or configuration.
See also: gpunbd(8)
)",
           .wraps = "serve",
           .synopsis = R"(.Nm
.Cm keep
.Op Fl -max-restarts Ar n
.Op Fl -within Ar seconds
.Op Fl -max-descriptors Ar n
.Op Fl -swap
.Op Fl -background
.Op Fl -
.Cm serve
.Op Ar flags
)",
           .manual = R"(.It Cm keep Oo Ar flags Oc Oo Fl - Oc Cm serve Op Ar flags
Run that server, and run it again when a signal kills it or it ends with another status than 0.
What it holds by file descriptors that it has stored is kept meanwhile and handed to the next one, by
the protocol of systemd's file descriptor store; under systemd itself it is not needed.
The file that
.Nm
was called by is what runs again: after an upgrade, the new one.
.Pp
.Dv SIGTERM , SIGINT , SIGQUIT , SIGHUP , SIGUSR1
and
.Dv SIGUSR2
are passed on to the server; after one of the first three it is not started again.
The exit status is that of the last server, or 128+n where signal n ended it.
.Pp
A server that had been ready is started again at once.
One that dies before that is started again after 0, 0.1, 0.2 and up to 6.4 seconds, and so is one that dies more often than
.Fl -max-restarts
allows, if descriptors are kept; this never ends.
.Pp
While no descriptors are kept, the keeper ends with the server where that ends with status 2, wrong usage or
configuration, where it ends by itself before any server of this
.Cm keep
was ready, and where it dies more often than allowed.
While descriptors are kept, a server that ends with status 2 is tried again after pauses of up to 51.2 seconds.
.Dv SIGHUP
ends any pause.
.Pp
Where the keeper itself dies, the server gets
.Dv SIGTERM :
what it would go on to hold could not be kept.
Contents end with the keeper.
It may run as process 1 of a container, locks its memory as far as it is allowed to, tells its own
.Ev NOTIFY_SOCKET
what the server says of itself, and hands on sockets that it was handed.
.Fl -run
does not go with it.
With
.Fl -background
it returns with status 0 once the server is ready, as
.Cm serve
does, and the keeper and the server go on in the background.
)"}) {}

void KeepCommand::store_wrapped(const std::vector<std::string>& line) {
    if (line.empty()) {
        throw UsageError(
            "what to run is missing; write for example gpunbd keep -- serve --size 1G");
    }
    if (line.front() != wraps) {
        throw UsageError(
            fmt::format("{} cannot be kept, only a server; write for example gpunbd "
                        "keep -- serve --size 1G",
                        in_quotes(line.front())));
    }
    for (const std::string& each : line) {
        if (each == "--background") {
            throw UsageError(
                "--background is a flag of keep here, which stays with the server; write gpunbd "
                "keep "
                "--background -- serve");
        }
        if (each != "--run" && !each.starts_with("--run=")) continue;
        throw UsageError(
            "--run ends the server with its command, and nothing is left to keep; leave keep out");
    }
    settings.server = line;
}

int KeepCommand::run(const Commands&) {
    const server::SupervisorLimits limits{.restarts = settings.max_restarts,
                                          .within = std::chrono::seconds(settings.within),
                                          .descriptors = settings.max_descriptors,
                                          .swap = settings.swap};
    if (!settings.background) return server::keep(limits, settings.server, {});
    return server::run_in_background("gpunbd keep", [&](const auto& on_ready) {
        return server::keep(limits, settings.server, on_ready);
    });
}

}  // namespace gpunbd::tools
