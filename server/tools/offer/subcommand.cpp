#include "server/tools/offer/subcommand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "config/command_line/store.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/snapshot.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::chrono::seconds patience{1};  // the user waits for it

std::vector<status::AdminServer> servers_of(const status::ServerSelection& selection) {
    if (!selection.socket) return status::find_servers(server::likely_runtime_folders()).servers;
    auto named = status::server_at(*selection.socket);
    std::vector<status::AdminServer> out;
    if (named) out.push_back(*std::move(named));
    return out;
}

// Shells split other words, or expand them.
bool is_plain(std::string_view word) {
    return !word.empty() && word[0] != '-' && std::ranges::all_of(word, [](char each) {
        return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
               (each >= '0' && each <= '9') ||
               std::string_view("._@/-+=,").find(each) != std::string_view::npos;
    });
}

void print_exports(const status::AdminServer& server) {
    const auto body =
        status::get(server, {.target = "/api/v1/exports"}, client::Clock::now() + patience);
    if (!body) return;
    const auto exports = status::read_exports(*body);
    if (!exports) return;
    for (const server::ExportStatus& each : *exports) {
        if (is_plain(each.name)) fmt::print("{}\n", each.name);
    }
}

}  // namespace

OfferCommand::OfferCommand()
    : Command(
          {.name = "offer",
           .takes = "WHAT",
           .example = "exports",
           .words = {"exports", "admin-sockets"},
           .kind = "words",
           .brief = "Print the words that a shell completes",
           .usage = "Usage: gpunbd offer exports|admin-sockets [--socket PATH]\n",
           .about =
               R"(For the scripts of gpunbd completion: prints the exports of the running servers,
or their admin sockets, one per line. Prints nothing if no server answers.
)",
           .groups = {{"Flags",
                       {{.name = "--socket",
                         .takes = "PATH",
                         .example = "/run/gpunbd/admin-4711.sock",
                         .brief = "Admin socket of the server",
                         .more = ".",
                         .store = into(server.socket, rules::unix_path)}}}},
           .examples = "  gpunbd offer exports\n",
           .ending = R"(Exit codes: 0 done; 2 wrong usage.
See also: gpunbd(8)
)",
           .hidden = true,
           .store = into(what)}) {}

int OfferCommand::run(const Commands&) {
    for (const status::AdminServer& each : servers_of(server)) {
        if (what == "exports") {
            print_exports(each);
        } else {
            fmt::print("{}\n", each.address.text);
        }
    }
    return 0;
}

}  // namespace gpunbd::tools
