#include "server/tools/kept/subcommand.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/size.hpp"
#include "config/text_layout.hpp"
#include "config/yaml_file.hpp"
#include "server/base/process.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/sanitized_text.hpp"

namespace gpunbd::status {

namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kept_patience{60};  // a server that creates exports may answer late

const Failure not_a_list{"the reply is not a list of kept contents"};

client::Deadline deadline() { return client::Clock::now() + kept_patience; }

const json::value* member(const json::object& of, std::string_view key) {
    return of.if_contains(key);
}

std::string text_of(const json::object& one, std::string_view key) {
    const json::value* const value = member(one, key);
    return value != nullptr && value->is_string() ? sanitized(value->get_string()) : "-";
}

std::optional<std::int64_t> number_of(const json::object& one, std::string_view key) {
    const json::value* const value = member(one, key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    boost::system::error_code error;
    const auto number = value->to_number<std::int64_t>(error);
    return error ? std::nullopt : std::optional(number);
}

std::string size_of(const json::object& one, std::string_view key) {
    const auto bytes = number_of(one, key);
    return bytes && *bytes >= 0 ? config::human_size(static_cast<std::uint64_t>(*bytes)) : "-";
}

std::string time_of(const json::object& one, std::string_view key) {
    const auto seconds = number_of(one, key);
    return seconds ? config::local_time_text(*seconds) : "-";
}

// If several servers run, the only one that keeps contents.
Expected<AdminServer, Failure> find_keeping_server(const std::vector<std::string>& folders) {
    FoundServers found = find_servers(folders);
    if (found.servers.size() == 1) return std::move(found.servers[0]);
    if (found.servers.empty() && !found.closed.empty()) return none_found(found, folders);
    FoundServers keeping;
    keeping.silent = found.silent;
    for (std::size_t i = 0; i != found.servers.size(); ++i) {
        const auto answer = get(found.servers[i], {.target = "/api/v1/kept"}, deadline());
        if (!answer) {
            keeping.silent.push_back(answer.error().text);
        } else {
            keeping.servers.push_back(found.servers[i]);
            keeping.pids.push_back(found.pids[i]);
        }
    }
    if (keeping.servers.size() == 1) return std::move(keeping.servers[0]);
    if (!keeping.servers.empty()) return too_many(keeping);
    return Failure{
        fmt::format("no server that keeps contents answers{}{}; name one with --socket PATH",
                    keeping.silent.empty() ? "" : ": ", fmt::join(keeping.silent, "; "))};
}

Expected<AdminServer, Failure> find_it(const KeptOptions& command,
                                       const std::optional<std::string>& configured,
                                       const std::vector<std::string>& folders) {
    if (command.socket) return server_at(*command.socket);
    if (configured) return server_at(*configured);
    return find_keeping_server(folders);
}

// Returns the text to print.
Expected<std::string, Failure> fetch(const KeptOptions& command, const AdminServer& server) {
    if (command.drop) {
        const Expected<std::string, Failure> done =
            get(server,
                {.target = "/api/v1/kept/drop",
                 .json = json::serialize(json::object{{"name", *command.drop}})},
                deadline());
        if (!done) return done.error();
        if (command.json) {
            return success(json::serialize(json::object{{"dropped", *command.drop}}) + '\n');
        }
        return success(fmt::format("kept contents {}: dropped, and their memory is freed\n",
                                   config::in_quotes(*command.drop)));
    }
    Expected<std::string, Failure> answer = get(server, {.target = "/api/v1/kept"}, deadline());
    if (!answer) return answer;
    Expected<std::string, Failure> table = kept_table(*answer);
    if (!command.json || !table) return table;
    return success(*answer + '\n');
}

}  // namespace

Expected<std::string, Failure> kept_table(std::string_view text) {
    boost::system::error_code error;
    const json::value value = json::parse(text, error);
    const json::value* const kept =
        !error && value.is_object() ? member(value.get_object(), "kept") : nullptr;
    if (kept == nullptr || !kept->is_array()) return not_a_list;
    if (kept->get_array().empty()) return success("no contents are kept\n");
    std::vector<std::vector<std::string>> rows{
        {"EXPORT", "SIZE", "USED", "DEVICES", "SINCE", "INSTANCE", "STATE"}};
    for (const json::value& each : kept->get_array()) {
        if (!each.is_object()) return not_a_list;
        const json::object& one = each.get_object();
        const json::value* const name = member(one, "name");
        const bool named = name != nullptr && name->is_string();
        rows.push_back({named ? config::in_quotes(std::string_view(name->get_string())) : "-",
                        size_of(one, "size"), size_of(one, "used"), text_of(one, "devices"),
                        time_of(one, "made"), text_of(one, "instance"), text_of(one, "state")});
    }
    return success(config::aligned_table(rows));
}

int run_kept(const KeptOptions& command, const std::optional<std::string>& configured,
             const std::vector<std::string>& folders) {
    const Expected<std::string, Failure> text =
        repeat_while_replaced([&]() -> Expected<std::string, Failure> {
            const Expected<AdminServer, Failure> server = find_it(command, configured, folders);
            if (!server) return server.error();
            return fetch(command, *server);
        });
    if (!text) {
        return server::report_failure("kept", with_remedy(text.error()), command.json,
                                      server::exit_failure);
    }
    fmt::print("{}", *text);
    return 0;
}

}  // namespace gpunbd::status

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
