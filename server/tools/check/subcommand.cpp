#include "server/tools/check/subcommand.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

#include "config/command_line/store.hpp"
#include "config/yaml_file.hpp"
#include "server/base/exit_code.hpp"
#include "server/daemon/preflight.hpp"
#include "server/exports/access_query.hpp"
#include "server/logging/log.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view who_details =
    R"(A line for each export, instead of the configuration: whether the client may open it, and the rule of the access
list and the line of the file that decide.
The client is a numeric address such as 10.1.2.3 or ::1;
.Cm unix:uid= Ns Ar user Ns Cm ,gid= Ns Ar group
for a client on a Unix socket, where further groups are supplementary ones; or
.Cm vsock: Ns Ar cid .)";

}  // namespace

CheckCommand::CheckCommand()
    : Command(
          {.name = "check",
           .called = "validate test lint verify",
           .takes = file_argument,
           .example = "/etc/gpunbd/gpunbd.yaml",
           .brief = "Validate a configuration file and print the effective one",
           .usage = "Usage: gpunbd check FILE [--who CLIENT [--tls-name NAME | --psk-user USER]]\n",
           .about =
               R"(Prints the effective configuration with all defaults as YAML to standard output,
or every problem of the file as FILE:LINE:COLUMN: KEY: PROBLEM to standard
error. It also checks the requirements of serving: owners, devices, sizes; and
reports checks that it could not run. It does not serve.

With --who it prints the exports that the client may open, and the rule and line
that decide.
)",
           .groups = {{"Flags",
                       {{.name = "--who",
                         .takes = "CLIENT",
                         .example = "10.1.2.3",
                         .brief = "Print the access of a client and the rules that grant it",
                         .more = ": 10.1.2.3, ::1, unix:uid=1000,gid=100 or vsock:3.",
                         .details = who_details,
                         .store = into(who)},
                        {.name = "--tls-name",
                         .takes = "NAME",
                         .example = "client.example.com",
                         .brief = "With --who: a name in its certificate",
                         .more = ", verified by TLS.",
                         .needs = "--who",
                         .store = into(tls_name)},
                        {.name = "--psk-user",
                         .takes = "USER",
                         .example = "alice",
                         .brief = "With --who: the user of its shared key in TLS",
                         .more = ".",
                         .needs = "--who",
                         .excludes = {"--tls-name"},
                         .why_not = "a client presents a certificate or uses a shared key",
                         .store = into(psk_user)}}}},
           .examples = R"(  gpunbd check /etc/gpunbd/gpunbd.yaml
  gpunbd check /etc/gpunbd/gpunbd.yaml --who 10.1.2.3 --tls-name node.example
)",
           .ending =
               R"(Exit codes: 0 the file is valid, and no requirement of serving is known to be
missing; 1 it is valid, but a requirement of serving is missing; 2 it is
invalid, --who names no client, or wrong usage.
See also: gpunbd(8), gpunbd.yaml(5)
)",
           .manual = R"(Validate a configuration.
If the file is valid, the effective configuration with all defaults is printed to standard output; it is a valid
configuration itself.
Otherwise all problems are printed to standard error, one per line, as
.Ar file : Ns Ar line : Ns Ar column : key : problem .
The command also checks the requirements of serving: owners, devices, sizes; and reports checks that it could not run.
)",
           .store = into(file)}) {}

int CheckCommand::answer(const Options& options) const {
    std::vector<std::string> lines;
    try {
        lines = server::access_report(options, server::peer_of({*who, tls_name, psk_user}));
    } catch (const std::runtime_error& error) {
        fmt::print(stderr, "gpunbd check: {}\n", error.what());
        return server::exit_usage;
    }
    for (const std::string& line : lines) fmt::print("{}\n", line);
    return 0;
}

int CheckCommand::run(const Commands&) {
    const auto options = load_or_report(file);
    if (!options) return server::exit_usage;
    // Library log lines must not mix with the configuration.
    const server::Log log({.level = "error"});
    if (who) return answer(*options);
    fmt::print("{}", to_yaml(*options));
    bool would_serve = true;
    for (const server::Finding& finding : server::try_out(*options)) {
        fmt::print(stderr, "{}: {}: {}{}\n", file, finding.key,
                   finding.failure ? "" : "note: ", finding.text);
        would_serve = would_serve && !finding.failure;
    }
    return would_serve ? 0 : server::exit_failure;
}

}  // namespace gpunbd::tools
