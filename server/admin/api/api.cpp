#include "server/admin/api/api.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <limits>
#include <variant>

#include "config/quote.hpp"
#include "server/admin/api/body.hpp"
#include "server/admin/api/encoding.hpp"
#include "server/admin/api/page.hpp"
#include "server/admin/api/query.hpp"
#include "server/admin/metrics/metrics.hpp"

namespace gpunbd::server::admin {

namespace json = boost::json;

namespace {

constexpr std::uint64_t no_bound = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t max_cells = 16'384;
constexpr std::uint32_t default_cells = 1024;

Query query_of(const Request& request) { return Query(split_target(request.target).query); }

Answer as_json(const json::value& value) { return {.body = json::serialize(value)}; }

Answer unknown_export(std::string_view name) {
    return refusal(404, fmt::format("there is no export {}; GET /api/v1/exports lists them",
                                    config::in_quotes(name)));
}

Answer after(const Outcome& outcome) {
    if (const auto* not_done = std::get_if<NotDone>(&outcome)) {
        return refusal(not_done->unknown ? 404 : 409, not_done->why);
    }
    const std::string& text = std::get<Done>(outcome).text;
    Answer answer = as_json(json::object{{"done", config::repaired_utf8(text)}});
    answer.done = text;
    return answer;
}

// Of an export that the query names; offset + length is never more than there are numbers.
struct Range {
    explicit Range(Query& query)
        : name(query.required_text("export")),
          offset(query.count("offset", 0, no_bound, 0)),
          length(std::min(query.count("length", 0, no_bound, no_bound), no_bound - offset)) {}

    std::string name;
    std::uint64_t offset;
    std::uint64_t length;
};

bool is_json(std::string_view type) {
    const std::string_view name = type.substr(0, type.find(';'));
    constexpr std::string_view wanted = "application/json";
    const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
    const std::size_t end = name.find_last_not_of(' ') + 1;
    return std::equal(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(end), wanted.begin(),
                      wanted.end(), same);
}

Answer wrong_method(std::string_view allowed) {
    Answer answer = refusal(405, fmt::format("this path takes {}", allowed));
    answer.fields.push_back({"Allow", std::string(allowed)});
    return answer;
}

}  // namespace

struct Api::Route {
    std::string_view path;
    bool changes;  // POST; else GET and HEAD
    bool has_query;
    Answer (Api::*answer)(const Request& request) const;
};

const Api::Route* Api::find_route(std::string_view path) {
    static constexpr Route routes[] = {
        {"/metrics", false, false, &Api::metrics},
        {"/api/v1/status", false, false, &Api::status},
        {"/api/v1/exports", false, false, &Api::exports},
        {"/api/v1/devices", false, false, &Api::devices},
        {"/api/v1/connections", false, false, &Api::connections},
        {"/api/v1/connections/end", true, false, &Api::end_connection},
        {"/api/v1/events", false, true, &Api::events},
        {"/api/v1/map", false, true, &Api::map},
        {"/api/v1/pages", false, true, &Api::pages},
        {"/api/v1/history", false, true, &Api::history},
        {"/api/v1/stream", false, false, &Api::stream},
        {"/api/v1/log-level", true, false, &Api::set_log_level},
        {"/api/v1/rates", true, false, &Api::set_rates},
        {"/api/v1/read-only", true, false, &Api::set_read_only},
    };
    const auto* const found = std::find_if(std::begin(routes), std::end(routes),
                                           [&](const Route& each) { return each.path == path; });
    return found == std::end(routes) ? nullptr : found;
}

Answer Api::answer(const Request& request) const {
    const bool reads = request.method == Method::get || request.method == Method::head;
    const std::string_view path = split_target(request.target).path;
    if (auto page = page_at(path)) return reads ? std::move(*page) : wrong_method("GET, HEAD");
    const Route* const route = find_route(path);
    if (route == nullptr) {
        return refusal(404, fmt::format("there is no {}; the page is at /, the rest is described "
                                        "in gpunbd(8)",
                                        config::in_quotes(path)));
    }
    if (route->changes) {
        if (request.method != Method::post) return wrong_method("POST");
        if (!is_json(request.content_type)) {
            return refusal(415, "the body is to be JSON; send Content-Type: application/json");
        }
    } else if (!reads) {
        return wrong_method("GET, HEAD");
    }
    if (!route->has_query) {
        if (const auto wrong = query_of(request).wrong()) return refusal(400, *wrong);
    }
    return (this->*route->answer)(request);
}

Answer Api::status(const Request&) const { return as_json(encode(server_.status())); }

Answer Api::exports(const Request&) const { return as_json(encode_all(server_.status().exports)); }

Answer Api::devices(const Request&) const { return as_json(encode_all(server_.status().devices)); }

Answer Api::connections(const Request&) const {
    return as_json(encode_all(server_.status().connections));
}

Answer Api::metrics(const Request& request) const {
    const bool openmetrics =
        request.accept.find("application/openmetrics-text") != std::string::npos;
    return {.type = openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                : "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_text(server_.status(), openmetrics)};
}

Answer Api::stream(const Request&) const {
    return {.type = "text/event-stream", .body = {}, .fields = {}, .stream = true};
}

Answer Api::events(const Request& request) const {
    Query query = query_of(request);
    const std::uint64_t after_id = query.count("after", 0, no_bound, 0);
    if (const auto wrong = query.wrong()) return refusal(400, *wrong);
    return as_json(encode_all(events_.after(after_id)));
}

Answer Api::map(const Request& request) const {
    Query query = query_of(request);
    const Range range(query);
    const auto cells = query.count("cells", 1, max_cells, default_cells);
    if (const auto wrong = query.wrong()) return refusal(400, *wrong);
    const auto found =
        server_.map(range.name, range.offset, range.length, static_cast<std::uint32_t>(cells));
    return found ? as_json(encode(range.name, *found)) : unknown_export(range.name);
}

Answer Api::pages(const Request& request) const {
    Query query = query_of(request);
    const Range range(query);
    if (const auto wrong = query.wrong()) return refusal(400, *wrong);
    const auto found = server_.pages(range.name, range.offset, range.length, max_runs);
    return found ? as_json(encode(range.name, *found)) : unknown_export(range.name);
}

Answer Api::history(const Request& request) const {
    Query query = query_of(request);
    const std::string name = query.required_text("export");
    if (const auto wrong = query.wrong()) return refusal(400, *wrong);
    if (const History::OfExport* const found = history_.of(name)) {
        return as_json(encode(name, *found));
    }
    const Status status = server_.status();
    const bool new_one = std::any_of(status.exports.begin(), status.exports.end(),
                                     [&](const auto& each) { return each.name == name; });
    if (!new_one) return unknown_export(name);
    return as_json(encode(name, History::OfExport{.end = status.time, .seconds = {}}));
}

Answer Api::end_connection(const Request& request) const {
    Body body(request.body);
    const std::uint64_t id = body.count("id");
    if (const auto wrong = body.wrong()) return refusal(400, *wrong);
    return after(server_.end_connection(id));
}

Answer Api::set_log_level(const Request& request) const {
    constexpr std::string_view levels[] = {"trace", "debug", "info", "warn", "error"};
    Body body(request.body);
    const std::string level = body.text("level");
    if (const auto wrong = body.wrong()) return refusal(400, *wrong);
    if (std::find(std::begin(levels), std::end(levels), level) == std::end(levels)) {
        return refusal(400, fmt::format("level: {} is none of trace, debug, info, warn, error",
                                        config::in_quotes(level)));
    }
    return after(server_.set_log_level(level));
}

Answer Api::set_rates(const Request& request) const {
    Body body(request.body);
    const std::string name = body.text("export");
    Body inner = body.object("rates");
    RateStatus rates;
    rates.bytes_per_second = inner.rate("bytes_per_second");
    rates.iops = inner.rate("iops");
    rates.burst = inner.duration("burst");
    body.join(inner);
    if (const auto wrong = body.wrong()) return refusal(400, *wrong);
    return after(server_.set_rates(name, rates));
}

Answer Api::set_read_only(const Request& request) const {
    Body body(request.body);
    const std::string name = body.text("export");
    const bool read_only = body.flag("read_only");
    if (const auto wrong = body.wrong()) return refusal(400, *wrong);
    return after(server_.set_read_only(name, read_only));
}

}  // namespace gpunbd::server::admin
