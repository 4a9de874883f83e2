#include "server/tools/keep/subcommand.hpp"

#include <fmt/format.h>

#include <chrono>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "server/base/background.hpp"
#include "server/supervisor/supervisor.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view max_descriptors_details =
    R"(At most the limit of open files less 64.
Their names must fit into one variable of 128 KiB, with a byte between them.)";
constexpr std::string_view swap_details = R"(The keeper has the protections of the server
.Pq see Sx SWAP ,
the server has them from its start on, and the keeper locks kept memory; contents of
.Ic host
are locked in full.
The keeper does not start if a protection is not available, or if its log is a file in a tmpfs.)";

}  // namespace

KeepCommand::KeepCommand()
    : Command(
          {.name = "keep",
           .called = "supervise watch respawn",
           .brief = "Restart a server when it dies, and keep its contents",
           .usage = R"(Usage: gpunbd keep [FLAGS] [--] serve [FLAGS OF SERVE]
)",
           .about =
               R"(Runs a server, restarts it when it dies, and passes on the file descriptors that
it has stored. Signals are forwarded to the server. It is not needed under
systemd: gpunbd(8) describes the settings of the unit.
)",
           .groups = {{"Flags",
                       {{.name = "--max-restarts",
                         .takes = "N",
                         .example = "10",
                         .brief = "Restarts within the time of --within",
                         .more = ", 1 to 10000; default 10. Above the limit keep exits, or "
                                 "restarts after a delay if it stores contents.",
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
                         .brief = "Maximum of stored file descriptors",
                         .more = ", 1 to 100000; default 16384.",
                         .called = "--descriptors --fds --max-fds --store",
                         .details = max_descriptors_details,
                         .store = into(settings.max_descriptors, integer_in(1, 100'000))},
                        {.name = "--swap",
                         .brief = "The machine uses exports of this server as swap",
                         .more = ": this process and the server get the protections that swap "
                                 "needs from their start.",
                         .details = swap_details,
                         .store = into(settings.swap)},
                        {.name = "--background",
                         .brief = "Return once the server is ready",
                         .more =
                             ", or with the status of a failed start. The keeper and the server "
                             "continue in the background, and the log still goes to standard "
                             "error.",
                         .called = "--fork --daemon --daemonize --detach -d",
                         .store = into(settings.background)}}}},
           .examples = R"(  gpunbd keep -- serve --config /etc/gpunbd/gpunbd.yaml
  gpunbd keep --background -- serve --size 8G --keep 2>>/var/log/gpunbd.log
  gpunbd keep --max-restarts 100 --within 3600 -- serve --size 8G
)",
           .ending =
               R"(Exit codes: 0 or the last server's, or 128+n if signal n ended it; 1 keep
failed; 2 wrong usage or configuration.
See also: gpunbd(8)
)",
           .wraps = "serve",
           .manual =
               R"(Run a server, and restart it when a signal kills it or it exits with a status other than 0.
The file descriptors that it has stored are kept meanwhile and passed to the next server, by the protocol of systemd's
file descriptor store.
The command is not needed under systemd.
Restarts run the program at the path by which
.Nm
was called, so that an upgraded program takes effect.
.Pp
.Dv SIGTERM , SIGINT , SIGQUIT , SIGHUP , SIGUSR1
and
.Dv SIGUSR2
are forwarded to the server; after one of the first three it is not restarted.
The exit status is that of the last server, or 128+n if signal n ended it.
.Pp
A server that was ready is restarted at once.
A server that dies before it is ready is restarted after 0, 0.1, 0.2 and up to 6.4 seconds.
The same delays apply to a server that dies more often than
.Fl -max-restarts
allows if descriptors are stored; there is no limit then.
.Pp
If no descriptors are stored, the keeper exits with the server in three cases: the server exits with status 2 (wrong
usage or configuration), it exits by itself before any server of this
.Cm keep
was ready, or it dies more often than allowed.
If descriptors are stored, a server that exits with status 2 is restarted after delays of up to 51.2 seconds.
.Dv SIGHUP
ends any delay.
.Pp
If the keeper dies, the server gets
.Dv SIGTERM ,
because its contents could not be kept any more.
Contents end with the keeper.
The keeper may run as process 1 of a container.
It locks its memory as far as permitted, forwards the notifications of the server to its own
.Ev NOTIFY_SOCKET ,
and passes inherited sockets to the server.
It cannot be combined with
.Fl -run .
With
.Fl -background
it returns with status 0 once the server is ready, and the keeper and the server continue in the background.
)"}) {}

void KeepCommand::store_wrapped(const std::vector<std::string>& line) {
    if (line.empty()) {
        throw UsageError(
            "the command is missing; write for example gpunbd keep -- serve --size 1G");
    }
    if (line.front() != wraps) {
        throw UsageError(fmt::format(
            "{} cannot be kept, only serve; write for example gpunbd keep -- serve --size 1G",
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
            "--run ends the server with its command, so there is nothing to keep; leave keep out");
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
