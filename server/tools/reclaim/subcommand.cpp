#include "server/tools/reclaim/subcommand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <limits>

#include "config/command_line/store.hpp"
#include "config/devices/device_drivers.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/base/process.hpp"
#include "server/base/runtime_folder.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/snapshot.hpp"

namespace gpunbd::status {

namespace {

namespace json = boost::json;

// Moving hundreds of gigabytes to a file takes long.
constexpr std::chrono::hours reclaim_patience{1};

std::string moved_text(const server::ReclaimStatus& device) {
    std::string out;
    for (const server::MovedStatus& each : device.moved) {
        out += fmt::format("{}{} of pages moved to {}", out.empty() ? "" : ", ",
                           config::human_size(each.bytes), each.device);
    }
    if (device.dropped != 0) {
        out += fmt::format("{}{} of caches dropped", out.empty() ? "" : ", ",
                           config::human_size(device.dropped));
    }
    return out.empty() ? "no pages moved" : out;
}

std::string freed_text(const server::ReclaimStatus& device) {
    if (device.freed == 0) return {};
    return fmt::format("{} of them from contents without an export, ",
                       config::human_size(device.freed));
}

std::string line_about(const server::ReclaimStatus& device, bool ended) {
    return fmt::format(
        "{}: {}{}{} in {:.2f} s\n", device.device,
        ended ? "" : fmt::format("{} given back, ", config::human_size(device.released)),
        freed_text(device), moved_text(device), device.seconds);
}

// What is in effect now.
std::string effect_on(const server::ReclaimStatus& device, const ReclaimOptions& command) {
    if (!device.limit) return {};
    std::string until;
    if (device.claim) {
        until = fmt::format(
            " until gpunbd reclaim {} --end{}", *device.claim,
            command.duration ? fmt::format(", or for {} s", command.duration->count()) : "");
    }
    return fmt::format(
        "{}: exports use at most {} there{}; further pages go to spill memory, and "
        "without room there writes fail with ENOSPC\n",
        device.device, config::human_size(*device.limit), until);
}

std::string error_about(const server::ReclaimStatus& device, bool ended) {
    if (ended) {
        return fmt::format("{}: not all pages could be moved back: {}", device.device,
                           device.why_not);
    }
    const std::uint64_t missing = device.wanted - std::min(device.wanted, device.released);
    return fmt::format("{}: {} could not be given back: {}", device.device,
                       config::human_size(missing), device.why_not);
}

Expected<std::string, Failure> fetch(const ReclaimOptions& command, const AdminServer& server) {
    json::object body;
    body["device"] = command.device.empty() ? json::value(nullptr) : json::value(command.device);
    if (command.end) {
        body["claim"] = command.claim ? json::value(*command.claim) : json::value(nullptr);
    } else {
        body["bytes"] = command.bytes ? json::value(*command.bytes) : json::value(nullptr);
        body["seconds"] =
            command.duration ? json::value(command.duration->count()) : json::value(nullptr);
    }
    return get(server,
               {.target = command.end ? "/api/v1/reclaim/end" : "/api/v1/reclaim",
                .json = json::serialize(body)},
               client::Clock::now() + reclaim_patience);
}

int report(const Failure& failed, bool as_json) {
    return server::report_failure("reclaim", with_remedy(failed), as_json, server::exit_failure);
}

}  // namespace

int run_reclaim(const ReclaimOptions& command, const std::vector<std::string>& folders) {
    const Expected<std::string, Failure> body =
        repeat_while_replaced([&]() -> Expected<std::string, Failure> {
            const Expected<AdminServer, Failure> server = find_server(command.server, folders);
            if (!server) return server.error();
            return fetch(command, *server);
        });
    if (!body) return report(body.error(), command.json);
    const auto reclaimed = read_reclaimed(*body);
    if (!reclaimed) return report(reclaimed.error(), command.json);
    if (command.json) fmt::print("{}\n", *body);
    int status = 0;
    for (const auto& device : *reclaimed) {
        if (!command.json) {
            fmt::print("{}{}", line_about(device, command.end), effect_on(device, command));
        }
        if (device.complete()) continue;
        status = server::exit_failure;  // the object has its why_not
        if (!command.json) report({error_about(device, command.end)}, false);
    }
    return status;
}

}  // namespace gpunbd::status

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::uint64_t max_seconds = 365 * 24 * 3600;
constexpr std::uint64_t max_claim = std::numeric_limits<std::uint64_t>::max();

constexpr std::string_view json_details = R"(The object's
.Va reclaimed
is a list of objects with
.Va device , wanted , released , freed , dropped , moved , seconds , why_not , claim
and
.Va limit .
Sizes are bytes, and
.Va moved
is a list of objects with
.Va device
and
.Va bytes .)";

}  // namespace

ReclaimCommand::ReclaimCommand()
    : Command(
          {.name = "reclaim",
           .called = "free evict yield shrink",
           .takes = "ID SIZE",
           .example = "cuda:0 4G",
           .optional = true,
           .brief = "Give GPU memory back to other programs",
           .usage = R"(Usage: gpunbd reclaim ID SIZE [--for SECONDS] [--json]
       gpunbd reclaim [ID] --all [--for SECONDS] [--json]
       gpunbd reclaim [ID|CLAIM] --end [--json]
       each with [--socket PATH | --url URL [--token FILE]]
)",
           .about =
               R"(Makes a running server give memory of the device ID back, while clients use the
exports: the pages that were used least are moved to the spill memory of the
device, which the configuration names. Returns when they have been moved, and
prints where. The exports do not use that memory again until --end, or until the
time of --for has passed. Each call is a claim with a number, and claims add up:
CLAIM --end ends one of them, and --end alone all. Without ID, all devices with
spill memory are meant.
)",
           .groups = {{"Flags",
                       status::server_flags(
                           settings.server,
                           {{.name = "--all",
                             .brief = "Give back all memory of the exports",
                             .more = " instead of a SIZE.",
                             .called = "--everything --full",
                             .excludes = {"--end"},
                             .why_not = "--end moves pages back",
                             .store = into(settings.all)},
                            {.name = "--end",
                             .brief = "Let the exports use the memory again",
                             .more = ", and move pages back.",
                             .called = "--stop --release --undo --return",
                             .store = into(settings.end)},
                            {.name = "--for",
                             .takes = "SECONDS",
                             .example = "3600",
                             .brief = "End it after this time",
                             .more = ", as if by --end.",
                             .called = "--timeout --duration --time",
                             .excludes = {"--end"},
                             .why_not = "--end moves pages back at once",
                             .store = into(settings.duration,
                                           [](std::string_view text) {
                                               return rules::seconds(text, {1, max_seconds});
                                           })},
                            json_flag(settings.json, json_details)})}},
           .examples = R"(  gpunbd reclaim cuda:0 4G
  gpunbd reclaim cuda:0 60G --for 3600
  gpunbd reclaim --all
  gpunbd reclaim cuda:0 --end
  gpunbd reclaim 3 --end
)",
           .ending =
               R"(Exit codes: 0 done; 1 no server answers, or less was given back than asked for;
2 wrong usage.
See also: gpunbd(8), gpunbd.yaml(5)
)",
           .manual =
               R"(Make a running server give memory of the device
.Ar id
back to other programs.
The pages of exports that were used least are moved to the
.Va spill
memory of the device while clients use them, and slabs are released.
The command returns when this is done, and prints where the pages are now and how long it took.
If less than
.Ar size
could be given back, it says how much is missing and why.
The exports do not use the memory again until
.Fl -end ,
or until the time of
.Fl -for
has passed; pages then return.
Each call is a claim with a number, which is printed and which
.Nm Cm status
lists.
Claims add up, and each ends by itself:
.Ar claim
.Fl -end
ends one of them,
.Fl -end
without it all.
All claims end with the server, also at an upgrade.
What could not be given back is not part of the claim: the exports may use again what they free.
Contents that no export has are freed before pages move.
Without
.Ar id ,
all devices that have spill memory are meant.
.Pp
The server is found as by
.Nm Cm status .
Changes need its Unix socket, or a token; see
.Sx ADMIN ENDPOINT .
)"}) {}

void ReclaimCommand::store_arguments(const std::vector<std::string>& arguments) {
    if (arguments.size() > 2) {
        throw UsageError(
            fmt::format("takes one ID and one SIZE; leave {} out", in_quotes(arguments[2])));
    }
    if (!arguments.empty()) {
        const bool is_number =
            std::ranges::all_of(arguments[0], [](char each) { return each >= '0' && each <= '9'; });
        const auto wrong = is_number && !arguments[0].empty()
                               ? into(settings.claim, integer_in(1, max_claim))(arguments[0])
                               : into(settings.device, rules::device_id)(arguments[0]);
        if (wrong) throw UsageError(*wrong);
    }
    if (arguments.size() == 2) {
        const auto size = [](std::string_view text) {
            return rules::bytes(text, {1, rules::max_export_size});
        };
        if (const auto wrong = into(settings.bytes, size)(arguments[1])) throw UsageError(*wrong);
    }
}

void ReclaimCommand::check() {
    if (settings.claim && !settings.end) {
        throw UsageError(
            fmt::format("{} is the number of a claim, which --end ends; write for "
                        "example {} 4G to give memory of a device back",
                        *settings.claim, example_device()));
    }
    if (settings.bytes && (settings.all || settings.end)) {
        throw UsageError(fmt::format("{} excludes a SIZE; leave one of them out",
                                     settings.all ? "--all" : "--end"));
    }
    if (settings.bytes || settings.all || settings.end) return;
    throw UsageError(settings.device.empty()
                         ? fmt::format("ID and SIZE are missing; write for example {} 4G, or --all",
                                       example_device())
                         : "SIZE is missing; write for example 4G, or --all, or --end");
}

int ReclaimCommand::run(const Commands&) {
    return status::run_reclaim(settings, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
