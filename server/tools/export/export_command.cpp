#include "server/tools/export/export_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "config/text_layout.hpp"
#include "server/base/process.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/sanitized_text.hpp"
#include "server/tools/status/snapshot.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::status {

namespace {

// A line on the terminal with the progress of an operation of the server, until it is destroyed.
class ProgressBar {
 public:
    // `what`, `of`: as in the progress of the status. Does nothing if standard error is no
    // terminal.
    ProgressBar(AdminServer server, std::string what, std::string of);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

 private:
    std::jthread thread_;
};

constexpr std::chrono::milliseconds interval{500};
constexpr std::chrono::seconds status_patience{5};
constexpr const char* clear_line = "\r\033[K";

// "saving export 'a': 1 GiB of 4 GiB [#####---------------]"
std::string progress_line(const std::string& what, const std::string& of, std::uint64_t done,
                          std::uint64_t total) {
    constexpr std::size_t width = 20;
    const double share =
        total == 0 ? 0 : static_cast<double>(std::min(done, total)) / static_cast<double>(total);
    const auto full = static_cast<std::size_t>(share * static_cast<double>(width));
    return fmt::format("{} {}: {} of {} [{}{}]", what, of, config::human_size(done),
                       config::human_size(total), std::string(full, '#'),
                       std::string(width - full, '-'));
}

void draw(const AdminServer& server, const std::string& what, const std::string& of) {
    const auto body =
        get(server, {.target = "/api/v1/status"}, client::Clock::now() + status_patience);
    if (!body) return;
    const auto status = read_status(*body);
    if (!status) return;
    for (const ProgressFigures& each : status->progress) {
        if (each.what != what || each.of != of) continue;
        fmt::print(stderr, "{}{}", clear_line, progress_line(what, of, each.done, each.total));
        std::fflush(stderr);
    }
}

ProgressBar::ProgressBar(AdminServer server, std::string what, std::string of) {
    if (::isatty(STDERR_FILENO) != 1) return;
    thread_ = std::jthread([server = std::move(server), what = std::move(what),
                            of = std::move(of)](const std::stop_token& stop) {
        Mutex mutex;
        StoppableCondition stopped;
        const Lock lock(mutex);
        while (!stopped.wait_for(mutex, stop, interval, [&] { return stop.stop_requested(); })) {
            draw(server, what, of);
        }
        fmt::print(stderr, "{}", clear_line);
    });
}

ProgressBar::~ProgressBar() = default;

namespace json = boost::json;

std::string devices_of(const server::ExportStatus& exported) {
    std::string out;
    for (const server::ExportMemory& each : exported.memory) {
        if (!each.home.empty()) continue;  // spill memory
        out += fmt::format("{}{}", out.empty() ? "" : " ", each.device);
    }
    return out;
}

// Of an export that was created at run time: "3 min".
std::string age_of(const server::ExportStatus& exported, std::time_t now) {
    if (!exported.created) return "-";
    const auto age = now - static_cast<std::time_t>(*exported.created);
    constexpr std::time_t minute = 60;
    constexpr std::time_t hour = 60 * minute;
    constexpr std::time_t day = 24 * hour;
    if (age < 2 * minute) return fmt::format("{} s", std::max<std::time_t>(age, 0));
    if (age < 2 * hour) return fmt::format("{} min", age / minute);
    return age < 2 * day ? fmt::format("{} h", age / hour) : fmt::format("{} d", age / day);
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
    for (const server::OriginStatus& each : exported.origins) {
        out += fmt::format("{}cache of {}", out.empty() ? "" : " ", config::in_quotes(each.path));
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

// `name`: the argument; one of several to remove.
HttpRequest request_for(const ExportRequest& request, const std::string& name) {
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
    if (request.action == "flush") return post("flush", {{"name", name}});
    if (request.action == "evict")
        return post("evict", {{"name", name}, {"size", request.names[1]}});
    if (request.action == "rename") {
        return post("rename", {{"name", name}, {"new_name", request.names[1]}});
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
Expected<std::string, Failure> confirmation(std::string_view body) {
    boost::system::error_code error;
    const json::value value = json::parse(body, error);
    const json::value* const done =
        !error && value.is_object() ? value.get_object().if_contains("done") : nullptr;
    if (done == nullptr || !done->is_string()) {
        return Failure{"the reply does not say what was done"};
    }
    return success(sanitized(done->get_string()) + '\n');
}

Expected<std::string, Failure> ask(const ExportRequest& request,
                                   const std::vector<std::string>& folders,
                                   const HttpRequest& wanted) {
    return repeat_while_replaced([&]() -> Expected<std::string, Failure> {
        const Expected<AdminServer, Failure> found = find_server(request.server, folders);
        if (!found) return found.error();
        const auto& server = *found;
        std::optional<ProgressBar> bar;
        if (const std::string what = progress_of(request); !what.empty()) {
            const std::string& name = request.names[request.action == "save" ? 0 : 1];
            bar.emplace(server, what, fmt::format("export {}", config::in_quotes(name)));
        }
        return get(server, wanted, client::Clock::now() + time_limit(request.action));
    });
}

Expected<std::string, Failure> list(const ExportRequest& request,
                                    const std::vector<std::string>& folders) {
    Expected<std::string, Failure> body = ask(request, folders, {.target = "/api/v1/exports"});
    if (!body) return body;
    Expected<std::string, Failure> table = export_table(*body, std::time(nullptr));
    if (!request.json || !table) return table;
    return success(*body + '\n');
}

// The export in the list of the server. The list omits exports that only make clones.
Expected<std::string, Failure> export_object(const ExportRequest& request, const std::string& name,
                                             const std::vector<std::string>& folders) {
    ExportRequest listing{.server = request.server, .action = "list", .names = {}};
    const Expected<std::string, Failure> body =
        ask(listing, folders, {.target = "/api/v1/exports"});
    if (!body) {
        return Failure{fmt::format("export {} is changed, but cannot be shown: {}",
                                   config::in_quotes(name), with_remedy(body.error()))};
    }
    boost::system::error_code error;
    const json::value exports = json::parse(*body, error);
    if (!error && exports.is_array()) {
        for (const json::value& each : exports.get_array()) {
            const json::value* const its_name =
                each.is_object() ? each.get_object().if_contains("name") : nullptr;
            if (its_name != nullptr && *its_name == json::value(name))
                return success(json::serialize(each) + '\n');
        }
    }
    return success(json::serialize(json::object{{"name", name}}) + '\n');
}

Expected<std::string, Failure> change(const ExportRequest& request,
                                      const std::vector<std::string>& folders) {
    Expected<std::string, Failure> body =
        ask(request, folders, request_for(request, request.names[0]));
    if (!body) return body;
    if (!request.json) return confirmation(*body);
    if (request.action == "save") {
        return success(json::serialize(json::object{{"name", request.names[0]},
                                                    {"file", absolute(request.names[1])}}) +
                       '\n');
    }
    const bool has_new_name =
        request.names.size() == 2 && request.action != "resize" && request.action != "evict";
    return export_object(request, request.names[has_new_name ? 1 : 0], folders);
}

// Removes each, also after a failure. Returns the exit status.
int remove_all(const ExportRequest& request, const std::vector<std::string>& folders) {
    json::array removed;
    json::array failures;
    for (const std::string& name : request.names) {
        const Expected<std::string, Failure> body =
            ask(request, folders, request_for(request, name));
        const Expected<std::string, Failure> done = !body ? body : confirmation(*body);
        if (done) {
            removed.emplace_back(name);
            if (!request.json) fmt::print("{}", *done);
            continue;
        }
        failures.emplace_back(json::object{{"name", name}, {"error", with_remedy(done.error())}});
        if (request.json) continue;
        server::report_failure("export",
                               request.names.size() == 1
                                   ? with_remedy(done.error())
                                   : fmt::format("{} is not removed: {}", config::in_quotes(name),
                                                 with_remedy(done.error())),
                               false, server::exit_failure);
    }
    const int status = failures.empty() ? 0 : server::exit_failure;
    if (request.json) {
        json::object out{{"removed", std::move(removed)}, {"failed", std::move(failures)}};
        if (status != 0) {
            const json::array& all = out["failed"].get_array();
            out["error"] = all.size() == 1
                               ? all[0].get_object().at("error")
                               : json::value(fmt::format("{} exports are not removed", all.size()));
        }
        fmt::print("{}\n", json::serialize(out));
    }
    return status;
}

}  // namespace

std::chrono::seconds time_limit(std::string_view action) {
    if (action == "list") return std::chrono::seconds(10);
    return std::chrono::hours(1);  // allocating or saving hundreds of gigabytes takes long
}

Expected<std::string, Failure> export_table(std::string_view json, std::time_t now) {
    const auto exports = read_exports(json);
    if (!exports) return exports.error();
    std::vector<std::vector<std::string>> rows{
        {"EXPORT", "SIZE", "USED", "SHARED", "OWN", "DEVICES", "CLIENTS", "AGE", "NOTES"}};
    for (const auto& each : *exports) {
        rows.push_back({config::in_quotes(each.name), config::human_size(each.size),
                        config::human_size(each.sum(&server::ExportMemory::used)),
                        config::human_size(each.shared), config::human_size(each.own),
                        devices_of(each), std::to_string(each.connections), age_of(each, now),
                        notes_of(each)});
    }
    if (rows.size() == 1) return success("the server has no exports\n");
    return success(config::aligned_table(rows));
}

int run_export(const ExportRequest& request, const std::vector<std::string>& folders) {
    if (request.action == "remove") return remove_all(request, folders);
    const Expected<std::string, Failure> text =
        request.action == "list" ? list(request, folders) : change(request, folders);
    if (!text) {
        return server::report_failure("export", with_remedy(text.error()), request.json,
                                      server::exit_failure);
    }
    fmt::print("{}", *text);
    return 0;
}

}  // namespace gpunbd::status
