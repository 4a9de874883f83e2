#include "server/tools/kept/subcommand.hpp"

#include "config/command_line/store.hpp"
#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "server/base/exit_code.hpp"
#include "server/base/runtime_folder.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view json_manual = R"(Print one JSON object instead of a table.
Its
.Va kept
is a list of objects with
.Va name , size , used , devices , made , instance
and
.Va state .
Sizes are bytes, and
.Va made
is in seconds since 1970.
Unknown values are null.)";

}  // namespace

KeptCommand::KeptCommand()
    : Command(
          {.name = "kept",
           .called = "contents saved left drop",
           .takes = file_argument,
           .example = "/etc/gpunbd.yaml",
           .optional = true,
           .brief = "List what a server keeps, or end it",
           .usage = R"(Usage: gpunbd kept [FILE | --socket PATH] [--json]
       gpunbd kept [FILE | --socket PATH] --drop NAME
)",
           .about =
               R"(Asks the running server, as its user or root, for the contents that outlive it:
of which export, its size, what is used of it, on which devices, since when,
the id of the instance, and what has become of them. The server is the one of
that configuration FILE, or at PATH, or the only one of this user, or of the
system, that keeps contents.
)",
           .groups = {{"Flags",
                       {{.name = "--socket",
                         .takes = "PATH",
                         .example = "/run/gpunbd/keeping.sock",
                         .brief = "Where the server is asked",
                         .more = ", its --admin-socket or --keeping-socket.",
                         .called = "--keeping-socket --unix --path",
                         .store = into(settings.socket, rules::unix_path)},
                        {.name = "--json",
                         .brief = "Print JSON instead of a table",
                         .more = ".",
                         .called = "--format --output",
                         .manual = json_manual,
                         .store = into(settings.json)},
                        {.name = "--drop",
                         .takes = "NAME",
                         .example = "scratch",
                         .brief = "End the contents that no export has",
                         .more =
                             ", which are listed under that name, and give their memory back. An "
                             "export that they kept from being served is then made anew.",
                         .called = "--delete --remove --rm --forget --discard",
                         .store = into(settings.drop, rules::export_name)}}}},
           .examples = R"(  gpunbd kept
  gpunbd kept --json --socket /run/gpunbd/keeping.sock
  gpunbd kept /etc/gpunbd.yaml --drop scratch
)",
           .ending =
               R"(Exit codes: 0 done; 1 no server answers, or nothing of that name can be ended;
2 wrong usage or configuration.
See also: gpunbd(8), gpunbd.yaml(5)
)",
           .synopsis = R"(.Nm
.Cm kept
.Op Ar file | Fl -socket Ar path
.Op Fl -json | Fl -drop Ar name
)",
           .manual =
               R"(.It Cm kept Oo Ar file | Fl -socket Ar path Oc Op Fl -json | Fl -drop Ar name
Ask a running server what it keeps beyond its own end: of each export's contents the size, how much
memory they have, the devices, when they were made, the id of the instance, and whether they are in use,
nobody's, or why they could not be taken over.
With
.Fl -drop
end those of that name that no export has, and give their memory back at once.
An export that was not served since they could not be taken over is then made anew, with new contents.
Where a page table cannot be read it is listed by twelve digits in place of a name, and dropped by them.
What an export has is not dropped: take the export out of the configuration first.
.Pp
The server is the one of that configuration
.Ar file ,
or at
.Ar path ;
else the only one that keeps contents of those that
.Nm Cm status
finds.
)",
           .store = into(config_file)}) {}

void KeptCommand::check() {
    if (config_file && settings.socket) {
        throw UsageError("FILE and --socket both say which server is asked; give one of them");
    }
    if (settings.json && settings.drop) {
        throw UsageError("--json is for the list; leave it out with --drop");
    }
}

int KeptCommand::run(const Commands&) {
    std::optional<std::string> configured;
    if (config_file) {
        const auto options = load_or_report(*config_file);
        if (!options) return server::exit_usage;
        configured = options->keeping.socket;
        const auto& admin = options->admin.socket;
        if (!configured && admin && *admin != no_socket) configured = admin;
    }
    return status::run_kept(settings, configured, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
