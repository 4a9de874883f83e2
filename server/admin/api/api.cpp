#include "server/admin/api/api.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <limits>
#include <variant>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/schema.hpp"
#include "config/yaml_file.hpp"
#include "server/admin/api/body.hpp"
#include "server/admin/api/encoding.hpp"
#include "server/admin/api/page.hpp"
#include "server/admin/metrics/metrics.hpp"

namespace gpunbd::server::admin {

namespace json = boost::json;

namespace {

constexpr std::uint64_t no_bound = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t max_cells = 16'384;
constexpr std::uint32_t default_cells = 1024;
constexpr std::uint64_t max_save_threads = 256;
constexpr std::uint64_t max_reclaim_seconds = 365 * 24 * 3600;

Query query_of(const Request& request) { return Query(split_target(request.target).query); }

Response as_json(const json::value& value) { return {.body = json::serialize(value)}; }

Response unknown_export(std::string_view name) {
    return error_response(404, fmt::format("unknown export {}; GET /api/v1/exports lists them",
                                           config::in_quotes(name)));
}

// A range of the export that the query names. offset + length does not overflow.
struct Range {
    explicit Range(Query& query)
        : name(query.required_text("export")),
          offset(query.count("offset", 0, no_bound, 0)),
          length(std::min(query.count("length", 0, no_bound, no_bound), no_bound - offset)) {}

    std::string name;
    std::uint64_t offset;
    std::uint64_t length;
};

// Parses a member by the rules of the configuration key of that name. Returns false if it is null
// or invalid.
bool take_key(Body& body, const std::string& name, const std::string& section,
              config::Options& options) {
    const auto text = body.scalar(name);
    if (!text) return false;
    const auto error = config::set_key(section + name, *text, options);
    if (error) body.set_error(name, *error);
    return !error;
}

// Parses a member by a rule of the configuration. Empty: it is null or invalid.
template <class Rule>
auto take_value(Body& body, const std::string& name, Rule rule) {
    using Value = std::variant_alternative_t<0, std::invoke_result_t<Rule, std::string_view>>;
    std::optional<Value> out;
    const auto text = body.scalar(name);
    if (!text) return out;
    auto checked = rule(*text);
    if (const auto* wrong = std::get_if<config::rules::Wrong>(&checked)) {
        body.set_error(name, wrong->what);
    } else {
        out = std::get<Value>(std::move(checked));
    }
    return out;
}

// A size of an export in bytes. 0: it is invalid.
std::uint64_t take_bytes(Body& body, const std::string& name) {
    const auto size = take_value(body, name, config::rules::export_size);
    if (size && size->percent == 0) return size->bytes;
    body.set_error(name, "is not a number of bytes; write for example \"8G\"");
    return 0;
}

// The path of a file of the server.
std::string take_file(Body& body) {
    std::string path = body.text("file");
    const auto checked = config::rules::file_path(path);
    if (const auto* wrong = std::get_if<config::rules::Wrong>(&checked)) {
        body.set_error("file", wrong->what);
    }
    return path;
}

// The options of an export in a body, or the error.
struct NewExport {
    config::ExportOptions options = {};
    std::string error = {};
};

// JSON is YAML as well, so that the reader of the configuration checks every key.
NewExport read_new_export(const std::string& text) {
    config::LoadedExport loaded = config::load_export_text(text, "");
    if (!loaded.problems.empty()) {
        const config::Problem& first = loaded.problems.front();
        return {.error = fmt::format("export{}{}: {}", first.key.empty() ? "" : ".", first.key,
                                     first.what)};
    }
    if (loaded.options.name.empty()) {
        return {.error = "export.name: is missing; write for example \"name\": \"fast\""};
    }
    return {.options = std::move(loaded.options)};
}

// The key that gives an export contents, in addition to a file that is restored; empty: none.
std::string_view key_of_contents(const config::ExportOptions& options) {
    if (!options.clone_of.empty()) return "clone_of";
    if (options.is_template()) return "clone_per_client";
    if (options.has_origin()) return "origin";
    return options.restore.empty() ? "" : "restore";
}

// The server reads and writes files with its own rights, and connects to other servers with its own
// certificates.
std::optional<Response> refuse_files(const Request& request) {
    if (request.owner) return std::nullopt;
    return error_response(403,
                          "files of the server are for its own user; use its admin socket instead "
                          "of TCP");
}

Response not_absolute(const std::string& path) {
    return error_response(400, fmt::format("{} is not an absolute path; the server opens the file, "
                                           "so begin it with /",
                                           config::in_quotes(path)));
}

bool is_json(std::string_view type) {
    const std::string_view name = type.substr(0, type.find(';'));
    constexpr std::string_view wanted = "application/json";
    const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
    const std::size_t end = name.find_last_not_of(' ') + 1;
    return std::equal(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(end), wanted.begin(),
                      wanted.end(), same);
}

Response method_not_allowed(std::string_view allowed) {
    Response response = error_response(405, fmt::format("this path supports only {}", allowed));
    response.headers.push_back({"Allow", std::string(allowed)});
    return response;
}

}  // namespace

struct Api::Route {
    std::string_view path;
    bool changes;  // POST; else GET and HEAD
    bool has_query;
    Response (Api::*handler)(const Request& request) const;
};

const Api::Route* Api::find_route(std::string_view path) {
    static constexpr Route routes[] = {
        {"/metrics", false, false, &Api::metrics},
        {"/api/v1/status", false, false, &Api::status},
        {"/api/v1/exports", false, false, &Api::exports},
        {"/api/v1/exports/create", true, false, &Api::create_export},
        {"/api/v1/exports/remove", true, false, &Api::remove_export},
        {"/api/v1/exports/resize", true, false, &Api::resize_export},
        {"/api/v1/exports/flush", true, false, &Api::flush_export},
        {"/api/v1/exports/evict", true, false, &Api::evict_export},
        {"/api/v1/exports/rename", true, false, &Api::rename_export},
        {"/api/v1/exports/snapshot", true, false, &Api::snapshot_export},
        {"/api/v1/exports/clone", true, false, &Api::clone_export},
        {"/api/v1/exports/save", true, false, &Api::save_export},
        {"/api/v1/exports/restore", true, false, &Api::restore_export},
        {"/api/v1/devices", false, false, &Api::devices},
        {"/api/v1/connections", false, false, &Api::connections},
        {"/api/v1/connections/end", true, false, &Api::end_connection},
        {"/api/v1/events", false, true, &Api::events},
        {"/api/v1/map", false, true, &Api::map},
        {"/api/v1/pages", false, true, &Api::pages},
        {"/api/v1/history", false, true, &Api::history},
        {"/api/v1/trends", false, false, &Api::trends},
        {"/api/v1/access", false, false, &Api::access},
        {"/api/v1/stream", false, false, &Api::stream},
        {"/api/v1/log-level", true, false, &Api::set_log_level},
        {"/api/v1/rates", true, false, &Api::set_rates},
        {"/api/v1/read-only", true, false, &Api::set_read_only},
        {"/api/v1/kept", false, false, &Api::list_kept},
        {"/api/v1/kept/drop", true, false, &Api::drop_kept},
        {"/api/v1/reclaim", true, false, &Api::reclaim},
        {"/api/v1/reclaim/end", true, false, &Api::end_reclaim},
    };
    const auto* const found = std::find_if(std::begin(routes), std::end(routes),
                                           [&](const Route& each) { return each.path == path; });
    return found == std::end(routes) ? nullptr : found;
}

Response Api::respond(const Request& request) const {
    const bool reads = request.method == Method::get || request.method == Method::head;
    const std::string_view path = split_target(request.target).path;
    if (auto page = page_at(path))
        return reads ? std::move(*page) : method_not_allowed("GET, HEAD");
    const Route* const route = find_route(path);
    if (route == nullptr) {
        return error_response(404, fmt::format("unknown path {}; the page is at /, and gpunbd(8) "
                                               "describes the API",
                                               config::in_quotes(path)));
    }
    if (route->changes) {
        if (request.method != Method::post) return method_not_allowed("POST");
        if (!is_json(request.content_type)) {
            return error_response(415,
                                  "the body must be JSON; send Content-Type: application/json");
        }
    } else if (!reads) {
        return method_not_allowed("GET, HEAD");
    }
    if (!route->has_query) {
        if (const auto error = query_of(request).error()) return error_response(400, *error);
    }
    return (this->*route->handler)(request);
}

Response Api::response_to(const Outcome& outcome) {
    if (const auto* not_done = std::get_if<NotDone>(&outcome)) {
        const unsigned code = not_done->unknown ? 404 : not_done->of_replacement() ? 421 : 409;
        return error_response(code, not_done->why);
    }
    if (const auto* kept = std::get_if<Kept>(&outcome)) {
        return as_json(json::object{{"kept", encode_all(kept->contents)}});
    }
    if (const auto* reclaimed = std::get_if<Reclaimed>(&outcome)) {
        return as_json(json::object{{"reclaimed", encode_all(reclaimed->devices)}});
    }
    const std::string& text = std::get<Done>(outcome).text;
    Response response = as_json(json::object{{"done", config::repaired_utf8(text)}});
    response.change = text;
    return response;
}

Status Api::status_with_last_second() const {
    Status status = server_.status();
    history_.add_last_second(status);
    return status;
}

Response Api::status(const Request&) const { return as_json(encode(status_with_last_second())); }

Response Api::exports(const Request&) const {
    return as_json(encode_all(status_with_last_second().exports));
}

Response Api::devices(const Request&) const {
    return as_json(encode_all(server_.status().devices));
}

Response Api::connections(const Request&) const {
    return as_json(encode_all(server_.status().connections));
}

Response Api::metrics(const Request& request) const {
    const bool openmetrics =
        request.accept.find("application/openmetrics-text") != std::string::npos;
    return {.content_type = openmetrics
                                ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                : "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_text(server_.status(), openmetrics)};
}

Response Api::stream(const Request&) const {
    return {.content_type = "text/event-stream", .body = {}, .headers = {}, .stream = true};
}

Response Api::events(const Request& request) const {
    Query query = query_of(request);
    const std::uint64_t after_id = query.count("after", 0, no_bound, 0);
    if (const auto error = query.error()) return error_response(400, *error);
    return as_json(encode_all(events_.after(after_id)));
}

Response Api::map(const Request& request) const {
    Query query = query_of(request);
    const Range range(query);
    const auto cells = query.count("cells", 1, max_cells, default_cells);
    if (const auto error = query.error()) return error_response(400, *error);
    const auto found =
        server_.map(range.name, range.offset, range.length, static_cast<std::uint32_t>(cells));
    return found ? as_json(encode(range.name, *found)) : unknown_export(range.name);
}

Response Api::pages(const Request& request) const {
    Query query = query_of(request);
    const Range range(query);
    if (const auto error = query.error()) return error_response(400, *error);
    const auto found = server_.pages(range.name, range.offset, range.length, max_runs);
    return found ? as_json(encode(range.name, *found)) : unknown_export(range.name);
}

Response Api::history(const Request& request) const {
    Query query = query_of(request);
    const std::string name = query.required_text("export");
    const auto seconds =
        query.count("seconds", 1, History::coarse * History::max_coarse, History::max_fine);
    if (const auto error = query.error()) return error_response(400, *error);
    if (const auto found = history_.of(name, seconds)) return as_json(encode(name, *found));
    const Status status = server_.status();
    const bool is_new = std::any_of(status.exports.begin(), status.exports.end(),
                                    [&](const auto& each) { return each.name == name; });
    if (!is_new) return unknown_export(name);
    return as_json(encode(name, History::Series{.end = status.time}));
}

Response Api::trends(const Request&) const {
    constexpr std::size_t last_minute = 60;  // seconds
    return as_json(encode(history_.trends(last_minute), history_.end()));
}

Response Api::access(const Request& request) const {
    return as_json(
        json::object{{"steering", !request.read_only_reason},
                     {"why_not", request.read_only_reason ? json::value(*request.read_only_reason)
                                                          : json::value(nullptr)}});
}

Response Api::end_connection(const Request& request) const {
    Body body(request.body);
    const std::uint64_t id = body.count("id");
    if (const auto error = body.error()) return error_response(400, *error);
    return {.operation = [&server = server_, id](Completion completion) {
        server.end_connection(id, std::move(completion));
    }};
}

Response Api::set_log_level(const Request& request) const {
    Body body(request.body);
    config::Options options;
    if (!take_key(body, "level", "log.", options))
        body.set_error("level", "is null; give the name of a level");
    if (const auto error = body.error()) return error_response(400, *error);
    return response_to(server_.set_log_level(options.log.level));
}

Response Api::set_rates(const Request& request) const {
    Body body(request.body);
    const std::string name = body.text("export");
    Body inner = body.object("rates");
    config::Options options;
    options.exports.emplace_back();
    for (const char* const key : {"bytes_per_second", "iops"}) {
        take_key(inner, key, "exports[].rates.", options);
    }
    if (!take_key(inner, "burst", "exports[].rates.", options)) {
        inner.set_error("burst", "is null; give seconds, for example 1");
    }
    body.join(inner);
    if (const auto error = body.error()) return error_response(400, *error);
    return perform(SetRates{.name = name, .rates = options.exports[0].rates});
}

Response Api::set_read_only(const Request& request) const {
    Body body(request.body);
    const std::string name = body.text("export");
    const bool read_only = body.flag("read_only");
    if (const auto error = body.error()) return error_response(400, *error);
    return perform(SetReadOnly{.name = name, .read_only = read_only});
}

Response Api::perform(ExportRequest request) const {
    const bool takes_long =
        !std::holds_alternative<SetRates>(request) && !std::holds_alternative<SetReadOnly>(request);
    return {
        .operation = [&server = server_, request = std::move(request)](
                         Completion completion) { server.perform(request, std::move(completion)); },
        .takes_long = takes_long};
}

Response Api::create_export(const Request& request) const {
    Body body(request.body);
    const std::string text = body.object_text("export");
    const bool persist = body.flag("persist");
    if (const auto error = body.error()) return error_response(400, *error);
    NewExport wanted = read_new_export(text);
    if (!wanted.error.empty()) return error_response(400, wanted.error);
    const config::ExportOptions& options = wanted.options;
    if (!options.size && options.restore.empty() && options.clone_of.empty() &&
        !options.is_template() && !options.has_origin()) {
        return error_response(400, "export.size: is missing; write for example \"size\": \"8G\"");
    }
    if (!options.restore.empty() || !options.save.path.empty() || options.has_origin()) {
        if (auto refusal = refuse_files(request)) return std::move(*refusal);
        const config::OriginOptions& origin = options.origin;
        for (const std::string& path :
             {options.restore, options.save.path, origin.file, origin.device}) {
            if (!path.empty() && !path.starts_with('/')) return not_absolute(path);
        }
    }
    return perform(CreateExport{.options = std::move(wanted.options), .persist = persist});
}

Response Api::resize_export(const Request& request) const {
    Body body(request.body);
    ResizeExport wanted{.name = body.text("name")};
    wanted.size = take_bytes(body, "size");
    wanted.discard = body.flag("discard");
    wanted.reconnect = body.flag("reconnect");
    if (const auto error = body.error()) return error_response(400, *error);
    return perform(std::move(wanted));
}

Response Api::flush_export(const Request& request) const {
    Body body(request.body);
    FlushExport wanted{.name = body.text("name")};
    if (const auto error = body.error()) return error_response(400, *error);
    return perform(std::move(wanted));
}

Response Api::evict_export(const Request& request) const {
    Body body(request.body);
    EvictExport wanted{.name = body.text("name")};
    wanted.size = take_bytes(body, "size");
    if (const auto error = body.error()) return error_response(400, *error);
    return perform(std::move(wanted));
}

Response Api::rename_export(const Request& request) const {
    Body body(request.body);
    RenameExport wanted{.name = body.text("name")};
    const auto name = take_value(body, "new_name", config::rules::export_name);
    if (!name || name->empty()) body.set_error("new_name", "is empty; give the export a name");
    if (const auto error = body.error()) return error_response(400, *error);
    wanted.new_name = *name;
    return perform(std::move(wanted));
}

Response Api::snapshot_export(const Request& request) const { return create_clone(request, true); }

Response Api::clone_export(const Request& request) const { return create_clone(request, false); }

Response Api::create_clone(const Request& request, bool read_only) const {
    Body body(request.body);
    CreateExport wanted;
    wanted.options.clone_of = body.text("source");
    if (wanted.options.clone_of.empty()) {
        body.set_error("source", "is empty; an export without a name has no snapshots or clones");
    }
    const auto name = take_value(body, "name", config::rules::export_name);
    if (!name || name->empty()) body.set_error("name", "is empty; give the export a name");
    if (const auto error = body.error()) return error_response(400, *error);
    wanted.options.name = *name;
    wanted.options.read_only = read_only;
    return perform(std::move(wanted));
}

Response Api::save_export(const Request& request) const {
    Body body(request.body);
    SaveExport wanted{.name = body.text("name"), .file = take_file(body)};
    const std::string compress = body.text_or_null("compress");
    if (!compress.empty() && compress != "zstd") {
        body.set_error("compress", "is neither null nor \"zstd\"");
    }
    wanted.zstd = !compress.empty();
    const auto threads = take_value(body, "threads", [](std::string_view count) {
        return config::rules::integer(count, {1, max_save_threads});
    });
    wanted.threads = static_cast<std::uint32_t>(threads.value_or(1));
    if (const auto error = body.error()) return error_response(400, *error);
    if (auto refusal = refuse_files(request)) return std::move(*refusal);
    if (!wanted.file.starts_with('/')) return not_absolute(wanted.file);
    return perform(std::move(wanted));
}

Response Api::restore_export(const Request& request) const {
    Body body(request.body);
    RestoreExport wanted{.file = take_file(body)};
    const std::string text = body.object_text("export");
    wanted.create.persist = body.flag("persist");
    if (const auto error = body.error()) return error_response(400, *error);
    NewExport created = read_new_export(text);
    if (!created.error.empty()) return error_response(400, created.error);
    if (const auto key = key_of_contents(created.options); !key.empty()) {
        return error_response(
            400,
            fmt::format(
                "export.{}: excludes the file, which gives the export its contents; leave it out",
                key));
    }
    if (auto refusal = refuse_files(request)) return std::move(*refusal);
    if (!wanted.file.starts_with('/')) return not_absolute(wanted.file);
    config::ExportOptions only_name;
    only_name.name = created.options.name;
    wanted.only_name = created.options == only_name && !wanted.create.persist;
    wanted.create.options = std::move(created.options);
    return perform(std::move(wanted));
}

Response Api::remove_export(const Request& request) const {
    Body body(request.body);
    RemoveExport wanted{.name = body.text("name"), .force = body.flag("force")};
    wanted.keep_contents = body.optional_flag("keep_contents");
    if (const auto error = body.error()) return error_response(400, *error);
    return perform(std::move(wanted));
}

Response Api::list_kept(const Request&) const {
    return {.operation = [&server = server_](Completion completion) {
        server.list_kept(std::move(completion));
    }};
}

Response Api::drop_kept(const Request& request) const {
    Body body(request.body);
    const std::string name = body.text("name");
    if (const auto error = body.error()) return error_response(400, *error);
    return {.operation = [&server = server_, name](Completion completion) {
        server.drop_kept(name, std::move(completion));
    }};
}

Response Api::reclaim(const Request& request) const {
    Body body(request.body);
    ReclaimRequest wanted;
    wanted.device = body.text_or_null("device");
    wanted.bytes = take_value(body, "bytes", [](std::string_view text) {
        return config::rules::bytes(text, {1, config::rules::max_export_size});
    });
    wanted.duration = take_value(body, "seconds", [](std::string_view text) {
        return config::rules::seconds(text, {1, max_reclaim_seconds});
    });
    wanted.owner = request.peer;
    if (const auto error = body.error()) return error_response(400, *error);
    return {
        .operation = [&server = server_, wanted](
                         Completion completion) { server.reclaim(wanted, std::move(completion)); },
        .takes_long = true};
}

Response Api::end_reclaim(const Request& request) const {
    Body body(request.body);
    EndOfReclaim wanted{.device = body.text_or_null("device")};
    wanted.claim = take_value(body, "claim", [](std::string_view text) {
        return config::rules::integer(text, {1, no_bound});
    });
    if (const auto error = body.error()) return error_response(400, *error);
    return {.operation =
                [&server = server_, wanted](Completion completion) {
                    server.end_reclaim(wanted, std::move(completion));
                },
            .takes_long = true};
}

}  // namespace gpunbd::server::admin
