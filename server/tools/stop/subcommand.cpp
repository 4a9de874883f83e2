#include "server/tools/stop/subcommand.hpp"

#include "config/command_line/store.hpp"
#include "config/rules.hpp"
#include "server/base/runtime_folder.hpp"

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
