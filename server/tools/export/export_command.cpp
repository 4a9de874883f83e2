#include "server/tools/export/export_command.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "config/aligned_table.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/base/exit_code.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/export/progress_bar.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/sanitized_text.hpp"
#include "server/tools/status/snapshot.hpp"

namespace gpunbd::status {
namespace {

namespace json = boost::json;

std::string devices_of(const server::ExportStatus& exported) {
    std::string out;
    for (const server::ExportMemory& each : exported.memory) {
        if (!each.home.empty()) continue;  // spill memory
        out += fmt::format("{}{}", out.empty() ? "" : " ", each.device);
    }
    return out;
}

std::string notes_of(const server::ExportStatus& exported) {
    std::string out;
    const auto add = [&](bool is_so, std::string_view note) {
        if (is_so) out += fmt::format("{}{}", out.empty() ? "" : " ", note);
    };
    add(exported.read_only, "read-only");
    add(exported.keep, "keep");
    add(exported.swap, "swap");
    add(exported.run_time, exported.persistent ? "persistent" : "run-time");
    if (!exported.clone_of.empty()) {
        out += fmt::format("{}{} of {}", out.empty() ? "" : " ",
                           exported.snapshot ? "snapshot" : "clone",
                           config::in_quotes(exported.clone_of));
    }
    for (const server::TemplateStatus& each : exported.templates) {
        out += fmt::format("{}base of {} ({} of {} clones)", out.empty() ? "" : " ",
                           config::in_quotes(each.name), each.clones, each.max);
    }
    return out.empty() ? "-" : out;
}

// The server may have another working directory.
std::string absolute(const std::string& path) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(path, error);
    return error ? path : whole.string();
}

// What the server calls the operation in its progress; empty: it is short.
std::string progress_of(const ExportRequest& request) {
    if (request.action == "save") return "saving";
    return request.action == "restore" ? "restoring" : "";
}

HttpRequest post(const std::string& action, const json::object& body) {
    return {.target = "/api/v1/exports/" + action, .json = json::serialize(body)};
}

HttpRequest request_for(const ExportRequest& request) {
    if (request.action == "list") return {.target = "/api/v1/exports"};
    const std::string& name = request.names.front();
    if (request.action == "create") {
        return post("create", {{"export", json::parse(tools::export_json(name, request.keys))},
                               {"persist", request.persist}});
    }
    if (request.action == "resize") {
        return post("resize", {{"name", name},
                               {"size", request.names[1]},
                               {"discard", request.discard},
                               {"reconnect", request.reconnect}});
    }
    if (request.action == "snapshot" || request.action == "clone") {
        return post(request.action, {{"source", name}, {"name", request.names[1]}});
    }
    if (request.action == "save") {
        return post(
            "save",
            {{"name", name},
             {"file", absolute(request.names[1])},
             {"compress", request.zstd ? json::value("zstd") : json::value(nullptr)},
             {"threads", request.threads ? json::value(*request.threads) : json::value(nullptr)}});
    }
    if (request.action == "restore") {
        return post("restore",
                    {{"file", absolute(name)},
                     {"export", json::parse(tools::export_json(request.names[1], request.keys))},
                     {"persist", request.persist}});
    }
    return post(
        "remove",
        {{"name", name}, {"force", request.force}, {"keep_contents", request.keep_contents}});
}

// The sentence with which the server confirms a change.
Or<std::string> confirmation(std::string_view body) {
    boost::system::error_code error;
    const json::value value = json::parse(body, error);
    const json::value* const done =
        !error && value.is_object() ? value.get_object().if_contains("done") : nullptr;
    if (done == nullptr || !done->is_string()) {
        return Failure{"the reply does not say what was done"};
    }
    return sanitized(done->get_string()) + '\n';
}

Or<std::string> fetch(const ExportRequest& request, const AdminServer& server) {
    std::optional<ProgressBar> bar;
    if (const std::string what = progress_of(request); !what.empty()) {
        const std::string& name = request.names[request.action == "save" ? 0 : 1];
        bar.emplace(server, what, fmt::format("export {}", config::in_quotes(name)));
    }
    Or<std::string> body =
        get(server, request_for(request), client::Clock::now() + time_limit(request.action));
    bar.reset();
    if (std::holds_alternative<Failure>(body)) return body;
    const std::string& text = std::get<std::string>(body);
    Or<std::string> shown = request.action == "list" ? export_table(text) : confirmation(text);
    if (!request.json || std::holds_alternative<Failure>(shown)) return shown;
    return text + '\n';
}

}  // namespace

std::chrono::seconds time_limit(std::string_view action) {
    if (action == "list") return std::chrono::seconds(10);
    return std::chrono::hours(1);  // allocating or saving hundreds of gigabytes takes long
}

Or<std::string> export_table(std::string_view json) {
    const auto exports = read_exports(json);
    if (const auto* failed = std::get_if<Failure>(&exports)) return *failed;
    std::vector<std::vector<std::string>> rows{
        {"EXPORT", "SIZE", "USED", "SHARED", "OWN", "DEVICES", "CLIENTS", "NOTES"}};
    for (const auto& each : std::get<std::vector<server::ExportStatus>>(exports)) {
        rows.push_back({config::in_quotes(each.name), config::human_size(each.size),
                        config::human_size(each.sum(&server::ExportMemory::used)),
                        config::human_size(each.shared), config::human_size(each.own),
                        devices_of(each), std::to_string(each.connections), notes_of(each)});
    }
    if (rows.size() == 1) return std::string("the server has no exports\n");
    return config::aligned_table(rows);
}

int run_export(const ExportRequest& request, const std::vector<std::string>& folders) {
    const Or<std::string> text = repeat_while_replaced([&]() -> Or<std::string> {
        const Or<AdminServer> server = find_server(request.server, folders);
        if (const auto* const failed = std::get_if<Failure>(&server)) return *failed;
        return fetch(request, std::get<AdminServer>(server));
    });
    if (const auto* const failed = std::get_if<Failure>(&text)) {
        fmt::print(stderr, "gpunbd export: {}\n", with_remedy(*failed));
        return server::exit_failure;
    }
    fmt::print("{}", std::get<std::string>(text));
    return 0;
}

}  // namespace gpunbd::status
