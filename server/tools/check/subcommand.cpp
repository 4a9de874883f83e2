#include "server/tools/check/subcommand.hpp"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "config/yaml_file.hpp"
#include "server/base/process.hpp"
#include "server/daemon/preflight.hpp"
#include "server/exports/access_list.hpp"
#include "server/json/report_failure.hpp"
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

constexpr std::string_view json_details = R"(An object with
.Va valid ,
whether the file is valid;
.Va serves ,
whether no requirement of serving is known to be missing;
.Va problems ,
a list of objects with
.Va line , column , key
and
.Va problem ,
and for what concerns serving
.Va note :
whether it is not an error; and
.Va configuration ,
the effective one as YAML text.
With
.Fl -who ,
the object's
.Va access
is a list of objects with
.Va export , access , why , line
and
.Va tls_only .)";

namespace js = boost::json;

js::value number_or_null(int number) {
    return number == 0 ? js::value(nullptr) : js::value(number);
}

js::object problem_object(const Problem& problem) {
    return {{"line", number_or_null(problem.line)},
            {"column", number_or_null(problem.column)},
            {"key", repaired_utf8(problem.key)},
            {"problem", repaired_utf8(problem.what)},
            {"note", false}};
}

void print(const js::object& object) { fmt::print("{}\n", js::serialize(object)); }

}  // namespace

CheckCommand::CheckCommand()
    : Command(
          {.name = "check",
           .called = "validate test lint verify",
           .takes = file_argument,
           .example = "/etc/gpunbd/gpunbd.yaml",
           .brief = "Validate a configuration file and print the effective one",
           .usage = "Usage: gpunbd check FILE [--who CLIENT [--tls-name NAME | --psk-user USER]]\n"
                    "                    [--json]\n",
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
                         .store = into(psk_user)},
                        json_flag(json, json_details)}}},
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
    std::vector<server::ExportAccess> found;
    try {
        found = server::access_report(options, server::peer_of({*who, tls_name, psk_user}));
    } catch (const std::runtime_error& error) {
        return server::report_failure("check", error.what(), json, server::exit_usage);
    }
    js::array access;
    for (const server::ExportAccess& each : found) {
        if (!json) {
            fmt::print("{}\n", each.text());
            continue;
        }
        access.emplace_back(
            js::object{{"export", repaired_utf8(each.name)},
                       {"access", each.access},
                       {"why", repaired_utf8(each.why)},
                       {"line", each.line ? js::value(*each.line) : js::value(nullptr)},
                       {"tls_only", each.in_tls}});
    }
    if (json) print({{"access", std::move(access)}});
    return 0;
}

int CheckCommand::refuse(const std::vector<Problem>& problems) const {
    js::array list;
    for (const Problem& each : problems) {
        if (!json) fmt::print(stderr, "{}\n", each.text());
        list.emplace_back(problem_object(each));
    }
    if (json) {
        print({{"error", repaired_utf8(problems.front().text())},
               {"valid", false},
               {"serves", false},
               {"problems", std::move(list)},
               {"configuration", nullptr}});
    }
    return server::exit_usage;
}

int CheckCommand::run(const Commands&) {
    const Loaded loaded = load_file(file);
    if (!loaded.problems.empty()) return refuse(loaded.problems);
    // Library log lines must not mix with the configuration.
    const server::Log log({.level = "error"});
    if (who) return answer(loaded.options);
    const std::string configuration = to_yaml(loaded.options);
    if (!json) fmt::print("{}", configuration);
    bool would_serve = true;
    std::string error;
    js::array list;
    for (const server::Finding& finding : server::try_out(loaded.options)) {
        if (!json) {
            fmt::print(stderr, "{}: {}: {}{}\n", file, finding.key,
                       finding.failure ? "" : "note: ", finding.text);
        }
        js::object each = problem_object({file, 0, 0, finding.key, finding.text});
        each["note"] = !finding.failure;
        list.emplace_back(std::move(each));
        if (would_serve && finding.failure) error = finding.key + ": " + finding.text;
        would_serve = would_serve && !finding.failure;
    }
    if (json) {
        js::object out{{"valid", true},
                       {"serves", would_serve},
                       {"problems", std::move(list)},
                       {"configuration", repaired_utf8(configuration)}};
        if (!would_serve) out["error"] = repaired_utf8(error);
        print(out);
    }
    return would_serve ? 0 : server::exit_failure;
}

}  // namespace gpunbd::tools
