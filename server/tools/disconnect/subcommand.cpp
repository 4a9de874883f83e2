#include "server/tools/disconnect/subcommand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <utility>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "server/base/process.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/sanitized_text.hpp"
#include "server/tools/status/snapshot.hpp"

namespace gpunbd::status {

namespace {

namespace json = boost::json;

using Connections = std::vector<server::ConnectionStatus>;

constexpr std::chrono::seconds patience{60};

Expected<std::string, Failure> ask(const AdminServer& server, const HttpRequest& request) {
    return get(server, request, client::Clock::now() + patience);
}

// Why there is no such connection.
Failure none_of(const DisconnectOptions& command, const AdminServer& server,
                const std::string& others) {
    const std::string name = config::in_quotes(command.export_name);
    if (!others.empty()) {
        return {fmt::format("export {} has no client {}; its clients are {}", name,
                            config::in_quotes(*command.client), others)};
    }
    const Expected<std::string, Failure> body = ask(server, {.target = "/api/v1/exports"});
    if (!body) return body.error();
    const auto exports = read_exports(*body);
    if (!exports) return exports.error();
    const bool exists = std::ranges::any_of(*exports, [&](const server::ExportStatus& each) {
        return each.name == sanitized(command.export_name);
    });
    return {exists ? fmt::format("export {} has no clients", name)
                   : fmt::format("there is no export {}; gpunbd export list lists them", name)};
}

Expected<Connections, Failure> find_connections(const DisconnectOptions& command,
                                                const AdminServer& server) {
    const Expected<std::string, Failure> body = ask(server, {.target = "/api/v1/connections"});
    if (!body) return body.error();
    auto all = read_connections(*body);
    if (!all) return std::move(all).error();
    Connections out;
    std::string others;
    for (auto& each : *all) {
        if (!each.serving || each.export_name != sanitized(command.export_name)) continue;
        if (!command.client || is_client(each, *command.client)) {
            out.push_back(std::move(each));
        } else {
            others += fmt::format("{}{}", others.empty() ? "" : ", ", each.peer);
        }
    }
    if (out.empty()) return none_of(command, server, others);
    return out;
}

// Returns the problem; empty: the connection is closed.
std::string end(const AdminServer& server, const server::ConnectionStatus& connection) {
    const Expected<std::string, Failure> done =
        ask(server, {.target = "/api/v1/connections/end",
                     .json = json::serialize(json::object{{"id", connection.id}})});
    return done ? std::string() : with_remedy(done.error());
}

}  // namespace

bool is_client(const server::ConnectionStatus& connection, const std::string& client) {
    if (client == connection.peer || client == std::to_string(connection.id)) return true;
    if (!connection.identity.empty() && client == connection.identity) return true;
    const std::size_t port = connection.peer.rfind(':');
    if (port == std::string::npos) return false;
    const std::string host = connection.peer.substr(0, port);
    return client == host || host == fmt::format("[{}]", client);
}

int run_disconnect(const DisconnectOptions& command, const std::vector<std::string>& folders) {
    const auto fail = [&](const Failure& failed) {
        return server::report_failure("disconnect", with_remedy(failed), command.json,
                                      server::exit_failure);
    };
    const Expected<AdminServer, Failure> found = find_server(command.server, folders);
    if (!found) return fail(found.error());
    const auto& server = *found;
    const Expected<Connections, Failure> connections = find_connections(command, server);
    if (!connections) return fail(connections.error());
    json::array disconnected;
    std::string first_error;
    for (const server::ConnectionStatus& each : *connections) {
        const std::string why = end(server, each);
        if (why.empty()) {
            disconnected.emplace_back(json::object{{"id", each.id}, {"peer", each.peer}});
            if (!command.json) fmt::print("{} is disconnected\n", each.peer);
        } else {
            if (first_error.empty()) first_error = why;
            if (!command.json) fail({fmt::format("{}: {}", each.peer, why)});
        }
    }
    if (command.json) {
        json::object out{{"disconnected", std::move(disconnected)}};
        if (!first_error.empty()) out["error"] = first_error;
        fmt::print("{}\n", json::serialize(out));
    }
    return first_error.empty() ? 0 : server::exit_failure;
}

}  // namespace gpunbd::status

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view json_details = R"(The object's
.Va disconnected
is a list of objects with
.Va id
and
.Va peer ;
after a failure,
.Va error
is the reason.)";

}  // namespace

DisconnectCommand::DisconnectCommand()
    : Command(
          {.name = "disconnect",
           .called = "kick drop-client end-connection close",
           .takes = "EXPORT CLIENT",
           .example = "fast 10.1.2.3",
           .brief = "Disconnect clients of an export",
           .usage = R"(Usage: gpunbd disconnect EXPORT [CLIENT] [--json]
       with [--socket PATH | --url URL [--token FILE]]
)",
           .about =
               R"(Closes the connections that clients have to an export of a running server: all,
or those of CLIENT, which is an address with or without its port, a name in a
certificate, the user of a shared key, or the id of a connection. Clients may
connect again: access rules or gpunbd export remove prevent that.
)",
           .groups = {{"Flags", status::server_flags(settings.server,
                                                     {json_flag(settings.json, json_details)})}},
           .examples = R"(  gpunbd disconnect fast
  gpunbd disconnect fast 10.1.2.3
)",
           .ending =
               R"(Exit codes: 0 done; 1 no server answers, there is no such client, or the server
refuses; 2 wrong usage.
See also: gpunbd(8)
)",
           .manual =
               R"(Close the connections that clients have to the export
.Ar export
of a running server, and wait until they are closed.
With
.Ar client
only those of that client: an address with or without its port, as
.Nm Cm top
shows it; a name in its certificate or the user of its shared key; or the id of a connection in the
API.
Requests in flight may be lost, and the client may connect again.
.Pp
The server is found as by
.Nm Cm status .
Changes need its Unix socket, or a token; see
.Sx ADMIN ENDPOINT .
)"}) {}

void DisconnectCommand::store_arguments(const std::vector<std::string>& arguments) {
    if (arguments.empty()) {
        throw UsageError(fmt::format("EXPORT is missing; {}", write_for_example()));
    }
    if (arguments.size() > 2) {
        throw UsageError(
            fmt::format("takes EXPORT and CLIENT; leave {} out", in_quotes(arguments[2])));
    }
    const auto wrong = into(settings.export_name, rules::export_name)(arguments[0]);
    if (wrong) throw UsageError(*wrong);
    if (arguments.size() == 1) return;
    if (arguments[1].empty()) throw UsageError("the CLIENT is empty; leave it out for all");
    settings.client = arguments[1];
}

int DisconnectCommand::run(const Commands&) {
    return status::run_disconnect(settings, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
