#include "server/admin/api/encoding.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_from.hpp>
#include <cmath>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

namespace json = boost::json;

namespace {

constexpr double nanoseconds = 1e9;  // of a second

// Made valid UTF-8.
json::string text(std::string_view given) { return json::string(config::repaired_utf8(given)); }

json::value text_or_null(std::string_view given) {
    return given.empty() ? json::value(nullptr) : json::value(text(given));
}

// JSON has no infinity and no NaN.
double number(double value) { return std::isfinite(value) ? value : 0; }

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / nanoseconds; }

template <class Value>
json::value or_null(const std::optional<Value>& value) {
    return value ? json::value(*value) : json::value(nullptr);
}

json::object counts(const CountsByReason& given) {
    json::object out;
    for (const auto& [reason, count] : given) out[config::repaired_utf8(reason)] = count;
    return out;
}

json::object encode(const storage::Histogram& latency) {
    return {{"count", latency.count()},
            {"sum", seconds(latency.sum())},
            {"p50", seconds(latency.quantile(0.5))},
            {"p90", seconds(latency.quantile(0.9))},
            {"p99", seconds(latency.quantile(0.99))},
            {"max", seconds(latency.max())}};
}

json::value encode_value(const ValueType& type, const void* value) {
    if (type.optional()) value = type.value(value);
    if (value == nullptr) return nullptr;
    switch (type.kind) {
        case ValueKind::text:
            return text(as<std::string>(value));
        case ValueKind::boolean:
            return as<bool>(value);
        case ValueKind::count32:
            return as<std::uint32_t>(value);
        case ValueKind::count:
            return as<std::uint64_t>(value);
        case ValueKind::integer:
            return as<std::int64_t>(value);
        case ValueKind::real:
            return number(as<double>(value));
        case ValueKind::counts:
            return counts(as<CountsByReason>(value));
        case ValueKind::histogram:
            return encode(as<storage::Histogram>(value));
        case ValueKind::object:
            return admin::encode(type.structure(), value);
        case ValueKind::list: {
            json::array out;
            const std::size_t count = type.size(value);
            out.reserve(count);
            for (std::size_t i = 0; i != count; ++i) {
                out.push_back(admin::encode(type.structure(), type.item(value, i)));
            }
            return out;
        }
    }
    return nullptr;
}

// Alternating: a value, and how often it is repeated.
json::array run_lengths(const std::vector<std::uint8_t>& values) {
    json::array out;
    for (std::size_t i = 0; i != values.size();) {
        std::size_t end = i;
        while (end != values.size() && values[end] == values[i]) ++end;
        out.push_back(values[i]);
        out.push_back(end - i);
        i = end;
    }
    return out;
}

json::object fields_of(const EventStatus& event) {
    json::error_code error;
    json::value fields = json::parse(config::repaired_utf8(event.fields), error);
    return !error && fields.is_object() ? std::move(fields.get_object()) : json::object();
}

}  // namespace

json::object encode(const Structure& structure, const void* object) {
    json::object out;
    out.reserve(structure.fields.size());
    for (const Field& field : structure.fields) {
        if (field.name.empty()) continue;
        if (field.not_null_if != nullptr && !field.not_null_if(object)) {
            out[field.name] = nullptr;
            continue;
        }
        field.with_value(
            object, [&](const void* value) { out[field.name] = encode_value(*field.type, value); });
    }
    return out;
}

json::object encode(const EventStatus& event) {
    return {{"id", event.id},
            {"time", number(event.time)},
            {"level", text(event.level)},
            {"text", text(event.text)},
            {"fields", fields_of(event)}};
}

json::object encode(std::string_view name, const ExportMap& map) {
    return {{"export", text(name)},
            {"size", map.size},
            {"page_size", map.page_size},
            {"offset", map.offset},
            {"length", map.length},
            {"cell", map.cell},
            {"used", run_lengths(map.used)},
            {"read", run_lengths(map.read)},
            {"written", run_lengths(map.written)}};
}

json::object encode(std::string_view name, const PageRuns& pages) {
    json::array runs;
    runs.reserve(pages.runs.size());
    for (const PageRun& each : pages.runs) {
        runs.push_back(json::object{{"offset", each.offset},
                                    {"length", each.length},
                                    {"device", text_or_null(each.device)}});
    }
    return {{"export", text(name)},
            {"page_size", pages.page_size},
            {"runs", std::move(runs)},
            {"next", or_null(pages.next)}};
}

json::object encode(std::string_view name, const History::Series& history) {
    using Interval = History::Interval;
    const auto series = [&](auto value_of) {
        json::array out;
        out.reserve(history.intervals.size());
        for (const Interval& each : history.intervals) out.push_back(value_of(each));
        return out;
    };
    json::object waits;
    for (std::size_t i = 0; i != wait_stages.size(); ++i) {
        waits[wait_stages[i]] = series([i](const Interval& each) { return each.longest.waits[i]; });
    }
    return {{"export", text(name)},
            {"end", number(history.end)},
            {"step", history.step},
            {"read_bytes", series([](const Interval& each) { return each.read.bytes; })},
            {"written_bytes", series([](const Interval& each) { return each.written.bytes; })},
            {"reads", series([](const Interval& each) { return each.read.requests; })},
            {"writes", series([](const Interval& each) { return each.written.requests; })},
            {"read_p50", series([](const Interval& each) { return each.read.p50; })},
            {"read_p99", series([](const Interval& each) { return each.read.p99; })},
            {"write_p50", series([](const Interval& each) { return each.written.p50; })},
            {"write_p99", series([](const Interval& each) { return each.written.p99; })},
            {"longest", series([](const Interval& each) { return each.longest.duration; })},
            {"longest_waits", std::move(waits)}};
}

json::object encode(const std::map<std::string, std::vector<std::uint64_t>>& trends, double end) {
    json::array exports;
    exports.reserve(trends.size());
    for (const auto& [name, bytes] : trends) {
        exports.push_back(json::object{{"export", text(name)}, {"bytes", json::value_from(bytes)}});
    }
    return {{"end", number(end)}, {"exports", std::move(exports)}};
}

}  // namespace gpunbd::server::admin
