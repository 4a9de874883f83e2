#include "server/tools/status/snapshot.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "server/admin/model/structure.hpp"
#include "server/tools/status/sanitized_text.hpp"

namespace gpunbd::status {
namespace {

namespace json = boost::json;

const Failure not_json{"the response is not JSON"};
const Failure not_a_status{"the response is not the status of a gpunbd server"};
const Failure not_a_list{"the response is not a list of connections"};
const Failure not_exports{"the response is not a list of exports"};
const Failure not_reclaimed{"the reply does not say what was reclaimed"};

const json::value* member(const json::value& of, std::string_view key) {
    return of.is_object() ? of.get_object().if_contains(key) : nullptr;
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

// Without overflow, because the numbers are not trusted.
std::uint64_t added(std::uint64_t a, std::uint64_t b) {
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    return b > most - a ? most : a + b;
}

std::uint64_t sum(const server::CountsByReason& counts) {
    std::uint64_t out = 0;
    for (const auto& [reason, number] : counts) out = added(out, number);
    return out;
}

// --- a value of any type of field

double real_in(const json::value& value) {
    constexpr double most = 1e12;
    boost::system::error_code error;
    const double given = value.is_number() ? value.to_number<double>(error) : 0;
    return error || !std::isfinite(given) ? 0 : std::clamp(given, 0.0, most);
}

std::string text_in(const json::value& value) {
    return value.is_string() ? sanitized(value.get_string()) : std::string();
}

void read_object(const json::value& from, const server::Structure& structure, void* to);

void read(const json::value& from, const server::ValueType& type, void* to) {
    if (type.optional()) {
        if (from.is_null()) return;
        to = type.emplace(to);
    }
    using server::as;
    using server::ValueKind;
    switch (type.kind) {
        case ValueKind::text:
            if (from.is_string()) as<std::string>(to) = text_in(from);
            return;
        case ValueKind::boolean:
            as<bool>(to) = from.is_bool() && from.get_bool();
            return;
        case ValueKind::count32:
            as<std::uint32_t>(to) = static_cast<std::uint32_t>(
                std::min<std::uint64_t>(count_in(from), std::numeric_limits<std::uint32_t>::max()));
            return;
        case ValueKind::count:
            as<std::uint64_t>(to) = count_in(from);
            return;
        case ValueKind::real:
            as<double>(to) = real_in(from);
            return;
        case ValueKind::counts:
            if (!from.is_object()) return;
            for (const auto& each : from.get_object()) {
                as<server::CountsByReason>(to)[sanitized(each.key())] = count_in(each.value());
            }
            return;
        case ValueKind::object:
            return read_object(from, type.structure(), to);
        case ValueKind::list:
            if (!from.is_array()) return;
            for (const json::value& each : from.get_array()) {
                if (each.is_object()) read_object(each, type.structure(), type.append(to));
            }
            return;
        case ValueKind::integer:
            as<std::int64_t>(to) = static_cast<std::int64_t>(
                std::min<std::uint64_t>(count_in(from), std::numeric_limits<std::int64_t>::max()));
            return;
        case ValueKind::histogram:  // the JSON does not contain its counts
            return;
    }
}

void read_object(const json::value& from, const server::Structure& structure, void* to) {
    for (const server::Field& field : structure.fields) {
        if (field.calculated()) continue;
        const json::value* const found = member(from, field.name);
        if (found != nullptr) read(*found, *field.type, field.in(to));
    }
}

template <server::Described Item>
std::vector<Item> read_list(const json::value& from) {
    std::vector<Item> out;
    for (const json::value& each : from.get_array()) {
        if (each.is_object()) read_object(each, Item::structure(), &out.emplace_back());
    }
    return out;
}

// --- what status and top show of it

RequestFigures figures_of(const server::RequestStatus& requests) {
    return {.type = requests.type,
            .requests = requests.requests,
            .bytes = requests.bytes,
            .in_flight = requests.in_flight,
            .errors = sum(requests.errors)};
}

ExportFigures figures_of(server::ExportStatus&& exported) {
    const server::LastSecond& last = exported.last_second;
    ExportFigures out{.name = std::move(exported.name),
                      .size = exported.size,
                      .connections = exported.connections,
                      .stalled = exported.stalled,
                      .last_p50 = std::max(last.read_p50, last.write_p50),
                      .last_p99 = std::max(last.read_p99, last.write_p99),
                      .memory = std::move(exported.memory),
                      .templates = std::move(exported.templates),
                      .origins = std::move(exported.origins)};
    for (const MemoryFigures& each : out.memory) out.used = added(out.used, each.used);
    for (const auto& each : exported.requests) out.requests.push_back(figures_of(each));
    return out;
}

std::vector<ConnectionFigures> connections_from(const json::value& list) {
    if (!list.is_array()) return {};
    std::vector<ConnectionFigures> out = read_list<ConnectionFigures>(list);
    for (ConnectionFigures& each : out) {
        if (!each.serving) each.export_name = "(handshake)";
    }
    return out;
}

Expected<Snapshot, Failure> status_from(const json::value& of) {
    const json::value* const process = member(of, "process");
    const json::value* const devices = member(of, "devices");
    const json::value* const exports = member(of, "exports");
    if (process == nullptr || !process->is_object() || devices == nullptr || !devices->is_array() ||
        exports == nullptr || !exports->is_array()) {
        return not_a_status;
    }
    server::Status status;
    read_object(of, server::Status::structure(), &status);
    Snapshot out{.time = status.time,
                 .process = std::move(status.process),
                 .accepted = status.accepted,
                 .connections = count(of, "connections"),
                 .refused = sum(status.refused),
                 .failed_handshakes = sum(status.failed_handshakes),
                 .progress = std::move(status.progress),
                 .devices = std::move(status.devices),
                 .exports = {},
                 .contents = std::move(status.contents)};
    for (auto& each : status.exports) out.exports.push_back(figures_of(std::move(each)));
    return out;
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

Expected<Snapshot, Failure> read_status(std::string_view json) {
    const auto value = parsed(json);
    return value ? status_from(*value) : Expected<Snapshot, Failure>(not_json);
}

Expected<std::vector<ConnectionFigures>, Failure> read_connections(std::string_view json) {
    const auto value = parsed(json);
    if (!value) return not_json;
    if (!value->is_array()) return not_a_list;
    return connections_from(*value);
}

Expected<std::vector<server::ExportStatus>, Failure> read_exports(std::string_view json) {
    const auto value = parsed(json);
    if (!value) return not_json;
    if (!value->is_array()) return not_exports;
    return read_list<server::ExportStatus>(*value);
}

Expected<std::vector<server::ReclaimStatus>, Failure> read_reclaimed(std::string_view json) {
    const auto value = parsed(json);
    const json::value* const devices = value ? member(*value, "reclaimed") : nullptr;
    if (devices == nullptr || !devices->is_array()) return not_reclaimed;
    return read_list<server::ReclaimStatus>(*devices);
}

Expected<Tick, Failure> read_tick(std::string_view json) {
    const auto value = parsed(json);
    if (!value) return not_json;
    const json::value* const status = member(*value, "status");
    if (status == nullptr) return not_a_status;
    Expected<Snapshot, Failure> snapshot = status_from(*status);
    if (!snapshot) return std::move(snapshot).error();
    Tick tick;
    tick.status = std::move(*snapshot);
    tick.connections_left_out = count(*value, "connections_left_out");
    const json::value* const connections = member(*value, "connections");
    if (connections != nullptr) tick.connections = connections_from(*connections);
    return tick;
}

std::string read_error(std::string_view json) {
    const auto value = parsed(json);
    const json::value* const error = value ? member(*value, "error") : nullptr;
    return error != nullptr ? text_in(*error) : std::string();
}

}  // namespace gpunbd::status
