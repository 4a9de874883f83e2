#include "server/tools/reclaim/reclaim_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "config/size.hpp"
#include "server/base/exit_code.hpp"
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

Or<std::string> fetch(const ReclaimOptions& command, const AdminServer& server) {
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
    const Or<std::string> body = repeat_while_replaced([&]() -> Or<std::string> {
        const Or<AdminServer> server = find_server(command.server, folders);
        if (const auto* const failed = std::get_if<Failure>(&server)) return *failed;
        return fetch(command, std::get<AdminServer>(server));
    });
    if (const auto* failed = std::get_if<Failure>(&body)) return report(*failed, command.json);
    const auto reclaimed = read_reclaimed(std::get<std::string>(body));
    if (const auto* failed = std::get_if<Failure>(&reclaimed)) return report(*failed, command.json);
    if (command.json) fmt::print("{}\n", std::get<std::string>(body));
    int status = 0;
    for (const auto& device : std::get<std::vector<server::ReclaimStatus>>(reclaimed)) {
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
