#include "server/status/snapshot.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <optional>

#include "server/status/harmless_text.hpp"

namespace gpunbd::status {
namespace {

namespace json = boost::json;

const Failure not_json{"the answer is no JSON"};
const Failure not_a_status{"the answer is not the status of a gpunbd server"};
const Failure not_a_list{"the answer is no list of connections"};

const json::value* member(const json::value& of, std::string_view key) {
    return of.is_object() ? of.get_object().if_contains(key) : nullptr;
}

std::string text(const json::value& of, std::string_view key) {
    const json::value* const found = member(of, key);
    return found != nullptr && found->is_string() ? harmless(found->get_string()) : std::string{};
}

bool truth(const json::value& of, std::string_view key) {
    const json::value* const found = member(of, key);
    return found != nullptr && found->is_bool() && found->get_bool();
}

std::uint64_t count_in(const json::value& value) {
    if (value.is_uint64()) return value.get_uint64();
    return value.is_int64() && value.get_int64() > 0 ? static_cast<std::uint64_t>(value.get_int64())
                                                     : 0;
}

std::uint64_t count(const json::value& of, std::string_view key) {
    const json::value* const found = member(of, key);
    return found == nullptr ? 0 : count_in(*found);
}

// Sums of what nobody vouches for.
std::uint64_t added(std::uint64_t a, std::uint64_t b) {
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    return b > most - a ? most : a + b;
}

// Of all reasons.
std::uint64_t sum(const json::value& of, std::string_view key) {
    const json::value* const found = member(of, key);
    std::uint64_t out = 0;
    if (found == nullptr || !found->is_object()) return out;
    for (const auto& each : found->get_object()) out = added(out, count_in(each.value()));
    return out;
}

double seconds(const json::value& of, std::string_view key) {
    constexpr double most = 1e12;
    const json::value* const found = member(of, key);
    if (found == nullptr || !found->is_number()) return 0;
    boost::system::error_code error;
    const auto value = found->to_number<double>(error);
    return error || !std::isfinite(value) ? 0 : std::clamp(value, 0.0, most);
}

template <class Figures>
std::vector<Figures> list(const json::value* of, Figures (*read)(const json::value&)) {
    std::vector<Figures> out;
    if (of == nullptr || !of->is_array()) return out;
    for (const json::value& each : of->get_array()) {
        if (each.is_object()) out.push_back(read(each));
    }
    return out;
}

RequestFigures requests_from(const json::value& of) {
    RequestFigures out{.type = text(of, "type"),
                       .requests = count(of, "requests"),
                       .bytes = count(of, "bytes"),
                       .in_flight = count(of, "in_flight"),
                       .errors = sum(of, "errors")};
    if (const json::value* const latency = member(of, "latency")) {
        out.p50 = seconds(*latency, "p50");
        out.p99 = seconds(*latency, "p99");
    }
    return out;
}

MemoryFigures memory_from(const json::value& of) {
    return {.device = text(of, "device"), .allocated = count(of, "allocated")};
}

ExportFigures export_from(const json::value& of) {
    return {.name = text(of, "name"),
            .size = count(of, "size"),
            .used = count(of, "used"),
            .connections = count(of, "connections"),
            .memory = list(member(of, "memory"), memory_from),
            .requests = list(member(of, "requests"), requests_from)};
}

DeviceFigures device_from(const json::value& of) {
    return {.id = text(of, "id"),
            .name = text(of, "name"),
            .failed = truth(of, "failed"),
            .total = count(of, "total"),
            .available = count(of, "available"),
            .allocated = count(of, "allocated"),
            .used = count(of, "used")};
}

ConnectionFigures connection_from(const json::value& of) {
    return {.id = count(of, "id"),
            .peer = text(of, "peer"),
            .export_name = truth(of, "serving") ? text(of, "export") : "(handshake)",
            .identity = text(of, "identity"),
            .since = seconds(of, "since"),
            .requests = count(of, "requests"),
            .in_flight = count(of, "in_flight"),
            .read = count(of, "read"),
            .written = count(of, "written")};
}

ProgressFigures progress_from(const json::value& of) {
    return {.what = text(of, "what"),
            .of = text(of, "of"),
            .done = count(of, "done"),
            .total = count(of, "total"),
            .unit = text(of, "unit")};
}

ProcessFigures process_from(const json::value& of) {
    return {.version = text(of, "version"),
            .commit = text(of, "commit"),
            .state = text(of, "state"),
            .pid = count(of, "pid"),
            .started = seconds(of, "started"),
            .cpu_seconds = seconds(of, "cpu_seconds"),
            .resident = count(of, "resident"),
            .open_files = count(of, "open_files"),
            .max_open_files = count(of, "max_open_files"),
            .workers = count(of, "workers")};
}

Or<Snapshot> status_from(const json::value& of) {
    const json::value* const process = member(of, "process");
    const json::value* const devices = member(of, "devices");
    const json::value* const exports = member(of, "exports");
    if (process == nullptr || !process->is_object() || devices == nullptr || !devices->is_array() ||
        exports == nullptr || !exports->is_array()) {
        return not_a_status;
    }
    return Snapshot{.time = seconds(of, "time"),
                    .process = process_from(*process),
                    .accepted = count(of, "accepted"),
                    .connections = count(of, "connections"),
                    .refused = sum(of, "refused"),
                    .failed_handshakes = sum(of, "failed_handshakes"),
                    .progress = list(member(of, "progress"), progress_from),
                    .devices = list(devices, device_from),
                    .exports = list(exports, export_from)};
}

std::optional<json::value> parsed(std::string_view text) {
    boost::system::error_code error;
    json::value value = json::parse(text, error);
    return error ? std::nullopt : std::optional(std::move(value));
}

}  // namespace

std::uint64_t ExportFigures::total(std::uint64_t RequestFigures::*figure) const {
    std::uint64_t out = 0;
    for (const RequestFigures& each : requests) out = added(out, each.*figure);
    return out;
}

std::uint64_t ExportFigures::bytes_of(std::string_view type) const {
    std::uint64_t out = 0;
    for (const RequestFigures& each : requests) {
        if (each.type == type) out = added(out, each.bytes);
    }
    return out;
}

double ExportFigures::slowest(double RequestFigures::*figure) const {
    double out = 0;
    for (const RequestFigures& each : requests) {
        if (each.type == "read" || each.type == "write") out = std::max(out, each.*figure);
    }
    return out;
}

Or<Snapshot> read_status(std::string_view json) {
    const auto value = parsed(json);
    return value ? status_from(*value) : Or<Snapshot>(not_json);
}

Or<std::vector<ConnectionFigures>> read_connections(std::string_view json) {
    const auto value = parsed(json);
    if (!value) return not_json;
    if (!value->is_array()) return not_a_list;
    return list(&*value, connection_from);
}

Or<Tick> read_tick(std::string_view json) {
    const auto value = parsed(json);
    if (!value) return not_json;
    const json::value* const status = member(*value, "status");
    if (status == nullptr) return not_a_status;
    Or<Snapshot> snapshot = status_from(*status);
    if (auto* const failed = std::get_if<Failure>(&snapshot)) return std::move(*failed);
    return Tick{.status = std::move(std::get<Snapshot>(snapshot)),
                .connections = list(member(*value, "connections"), connection_from),
                .connections_left_out = count(*value, "connections_left_out")};
}

std::string read_error(std::string_view json) {
    const auto value = parsed(json);
    return value ? text(*value, "error") : std::string{};
}

}  // namespace gpunbd::status
