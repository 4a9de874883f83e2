#include "server/tools/kept/subcommand.hpp"

#include <fmt/format.h>

#include "config/command_line/store.hpp"
#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "server/base/exit_code.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/json/report_failure.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view json_details = R"(The object's
.Va kept
is a list of objects with
.Va name , size , used , devices , made , instance
and
.Va state .
Sizes are bytes, and
.Va made
is in seconds since 1970.
Unknown values are null.
With
.Fl -drop
the object's
.Va dropped
is the name.)";

}  // namespace

KeptCommand::KeptCommand()
    : Command(
          {.name = "kept",
           .called = "contents saved left drop",
           .takes = file_argument,
           .example = "/etc/gpunbd/gpunbd.yaml",
           .optional = true,
           .brief = "List or drop kept contents",
           .usage = R"(Usage: gpunbd kept [FILE | --socket PATH] [--json]
       gpunbd kept [FILE | --socket PATH] --drop NAME [--json]
)",
           .about =
               R"(Lists the contents that outlive a running server: the export, size, memory in
use, devices, time of creation, instance and state. Only the server's user and
root can list them. The server is the one at the keeping.socket or admin.socket
of the configuration FILE, the one at the socket PATH, or the only server of
this user or of the system that keeps contents.
)",
           .groups = {{"Flags",
                       {{.name = "--socket",
                         .takes = "PATH",
                         .example = "/run/gpunbd/keeping.sock",
                         .brief = "Socket of the server",
                         .more = ", its --admin-socket or --keeping-socket.",
                         .called = "--keeping-socket --unix --path",
                         .store = into(settings.socket, rules::unix_path)},
                        json_flag(settings.json, json_details),
                        {.name = "--drop",
                         .takes = "NAME",
                         .example = "scratch",
                         .brief = "Free contents that no export uses",
                         .more = " and that are listed under this name. An export that was "
                                 "blocked by them is created again, empty.",
                         .called = "--delete --remove --rm --forget --discard",
                         .store = into(settings.drop, rules::export_name)}}}},
           .examples = R"(  gpunbd kept
  gpunbd kept --json --socket /run/gpunbd/keeping.sock
  gpunbd kept /etc/gpunbd/gpunbd.yaml --drop scratch
)",
           .ending =
               R"(Exit codes: 0 done; 1 no server answers, or no contents of that name can be
dropped; 2 wrong usage or configuration.
See also: gpunbd(8), gpunbd.yaml(5)
)",
           .manual =
               R"(List the contents that outlive a running server: for each export the size, the memory in use, the devices, the time of
creation, the id of the instance, and the state: in use, without an export, or the reason why they could not be taken
over.
.Fl -drop
frees the contents of that name that no export uses.
An export that was not served because they could not be taken over is then created again, empty.
If a page table cannot be read, the contents are listed and dropped by twelve digits instead of a name.
Contents in use are not dropped: remove the export from the configuration first.
.Pp
The server is the one at
.Va keeping.socket
or
.Va admin.socket
of the configuration
.Ar file ,
or the one at
.Ar path .
The default is the only server that keeps contents among those that
.Nm Cm status
finds.
)",
           .store = into(config_file)}) {}

void KeptCommand::check() {
    if (config_file && settings.socket) {
        throw UsageError("FILE and --socket both name the server; give one of them");
    }
}

int KeptCommand::run(const Commands&) {
    std::optional<std::string> configured;
    if (config_file) {
        const Loaded loaded = load_file(*config_file);
        if (!loaded.problems.empty() && settings.json) {
            return server::report_failure("kept", loaded.problems.front().text(), true,
                                          server::exit_usage);
        }
        for (const Problem& each : loaded.problems) fmt::print(stderr, "{}\n", each.text());
        if (!loaded.problems.empty()) return server::exit_usage;
        configured = loaded.options.keeping.socket;
        const auto& admin = loaded.options.admin.socket;
        if (!configured && admin && *admin != no_socket) configured = admin;
        if (!configured) {  // the default admin socket contains the process id
            return server::report_failure(
                "kept",
                fmt::format("{}: names neither keeping.socket nor admin.socket; add one, or use "
                            "--socket PATH",
                            *config_file),
                settings.json, server::exit_usage);
        }
    }
    return status::run_kept(settings, configured, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
