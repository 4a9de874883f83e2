#include "server/admin/api/encoding.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cmath>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

namespace json = boost::json;

namespace {

constexpr double nanoseconds = 1e9;  // of a second

// Valid whatever the bytes are.
json::string text(std::string_view given) { return json::string(config::repaired_utf8(given)); }

json::value text_or_null(std::string_view given) {
    return given.empty() ? json::value(nullptr) : json::value(text(given));
}

// JSON has no others.
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

json::object encode(const RequestStatus& requests) {
    return {{"type", text(requests.type)},       {"requests", requests.requests},
            {"bytes", requests.bytes},           {"in_flight", requests.in_flight},
            {"errors", counts(requests.errors)}, {"latency", encode(requests.latency)}};
}

json::object encode(const RateStatus& rates) {
    return {{"bytes_per_second", or_null(rates.bytes_per_second)},
            {"iops", or_null(rates.iops)},
            {"burst", number(rates.burst)}};
}

json::object encode(const ExportMemory& memory) {
    return {{"device", text(memory.device)},
            {"used", memory.used},
            {"allocated", memory.allocated},
            {"slabs", memory.slabs}};
}

json::object encode(const CopyStatus& copies) {
    return {{"path", text(copies.path)},
            {"direction", text(copies.direction)},
            {"copies", copies.copies},
            {"bytes", copies.bytes}};
}

json::object encode(const ProgressStatus& progress) {
    return {{"what", text(progress.what)},
            {"of", text(progress.of)},
            {"done", progress.done},
            {"total", progress.total},
            {"unit", text(progress.unit)}};
}

json::object encode(const ProcessStatus& process) {
    return {{"version", text(process.version)},
            {"commit", text(process.commit)},
            {"build", text(process.build)},
            {"pid", process.pid},
            {"started", number(process.started)},
            {"cpu_seconds", number(process.cpu_seconds)},
            {"resident", process.resident},
            {"open_files", process.open_files},
            {"max_open_files", process.max_open_files},
            {"workers", process.workers},
            {"state", text(process.state)}};
}

template <class Item>
json::array encoded(const std::vector<Item>& items) {
    json::array out;
    out.reserve(items.size());
    for (const Item& each : items) out.push_back(encode(each));
    return out;
}

// A value and how many have it, and so on.
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

json::object encode(const Status& status) {
    return {{"time", number(status.time)},
            {"process", encode(status.process)},
            {"progress", encoded(status.progress)},
            {"accepted", status.accepted},
            {"connections", status.connections.size()},
            {"refused", counts(status.refused)},
            {"handshakes", status.handshakes},
            {"tls_handshakes", status.tls_handshakes},
            {"failed_handshakes", counts(status.failed_handshakes)},
            {"devices", encode_all(status.devices)},
            {"exports", encode_all(status.exports)}};
}

json::object encode(const DeviceStatus& device) {
    return {{"id", text(device.id)},
            {"name", text(device.name)},
            {"failed", device.failed},
            {"total", device.total},
            {"available", device.available},
            {"reserve", device.reserve},
            {"mapped", device.mapped},
            {"allocated", device.allocated},
            {"used", device.used},
            {"slabs", device.slabs},
            {"staging", device.staging},
            {"staging_used", device.staging_used},
            {"staging_waits", device.staging_waits},
            {"failures", device.failures},
            {"copies", encoded(device.copies)},
            {"others_compute", or_null(device.others_compute)},
            {"competition_noticed", device.competition_noticed}};
}

json::object encode(const ExportStatus& exported) {
    std::uint64_t used = 0;
    std::uint64_t allocated = 0;
    for (const ExportMemory& each : exported.memory) {
        used += each.used;
        allocated += each.allocated;
    }
    return {{"name", text(exported.name)},
            {"description", text(exported.description)},
            {"size", exported.size},
            {"page_size", exported.page_size},
            {"layout", text(exported.layout)},
            {"provision", text(exported.provision)},
            {"read_only", exported.read_only},
            {"keep", exported.keep},
            {"swap", exported.swap},
            {"instance", text(exported.instance)},
            {"used", used},
            {"allocated", allocated},
            {"memory", encoded(exported.memory)},
            {"connections", exported.connections},
            {"rates", encode(exported.rates)},
            {"held_back", exported.held_back},
            {"requests", encoded(exported.requests)}};
}

json::object encode(const ConnectionStatus& connection) {
    return {{"id", connection.id},
            {"peer", text(connection.peer)},
            {"listener", text(connection.listener)},
            {"export",
             connection.serving ? json::value(text(connection.export_name)) : json::value(nullptr)},
            {"serving", connection.serving},
            {"read_only", connection.read_only},
            {"since", number(connection.since)},
            {"tls", text_or_null(connection.tls)},
            {"identity", text_or_null(connection.identity)},
            {"requests", connection.requests},
            {"in_flight", connection.in_flight},
            {"read", connection.read},
            {"written", connection.written}};
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

json::object encode(std::string_view name, const History::OfExport& history) {
    using Second = History::Second;
    const auto series = [&](auto value_of) {
        json::array out;
        out.reserve(history.seconds.size());
        for (const Second& each : history.seconds) out.push_back(value_of(each));
        return out;
    };
    return {{"export", text(name)},
            {"end", number(history.end)},
            {"read_bytes", series([](const Second& each) { return each.read.bytes; })},
            {"written_bytes", series([](const Second& each) { return each.written.bytes; })},
            {"reads", series([](const Second& each) { return each.read.requests; })},
            {"writes", series([](const Second& each) { return each.written.requests; })},
            {"read_p50", series([](const Second& each) { return each.read.p50; })},
            {"read_p99", series([](const Second& each) { return each.read.p99; })},
            {"write_p50", series([](const Second& each) { return each.written.p50; })},
            {"write_p99", series([](const Second& each) { return each.written.p99; })}};
}

}  // namespace gpunbd::server::admin
