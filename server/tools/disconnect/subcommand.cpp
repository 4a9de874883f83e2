#include "server/tools/disconnect/subcommand.hpp"

#include <fmt/format.h>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "server/base/runtime_folder.hpp"

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
