#include "server/admin/metrics/families.hpp"

namespace gpunbd::server {

namespace {

using Exports = std::vector<ExportStatus>;

std::string_view yes_or_no(bool is) { return is ? "yes" : "no"; }

void add_infos(Exposition& out, const Exports& exports) {
    out.family(
        {"gpunbd_export", MetricType::info,
         "The exports, and what of them does not change; contents: the id of what is in it."});
    for (const ExportStatus& each : exports) {
        out.add({{"export", each.name},
                 {"description", each.description},
                 {"layout", each.layout},
                 {"provision", each.provision},
                 {"keep", yes_or_no(each.keep)},
                 {"swap", yes_or_no(each.swap)},
                 {"contents", each.instance}});
    }
}

// One sample of each export.
void add_each(Exposition& out, const Exports& exports, const MetricFamily& family, auto value) {
    out.family(family);
    for (const ExportStatus& each : exports) out.add({{"export", each.name}}, value(each));
}

void add_numbers(Exposition& out, const Exports& exports) {
    using Export = const ExportStatus&;
    add_each(out, exports, {"gpunbd_export_size_bytes", MetricType::gauge, "Size of the export."},
             [](Export each) { return each.size; });
    add_each(out, exports,
             {"gpunbd_export_page_size_bytes", MetricType::gauge, "Size of its pages."},
             [](Export each) { return each.page_size; });
    add_each(out, exports,
             {"gpunbd_export_read_only", MetricType::gauge, "1: it may only be read."},
             [](Export each) { return each.read_only; });
    add_each(out, exports,
             {"gpunbd_export_connections", MetricType::gauge, "Connections that have it open."},
             [](Export each) { return each.connections; });
    add_each(out, exports,
             {"gpunbd_export_requests_held_back", MetricType::counter,
              "Requests that had to wait for the export's limits."},
             [](Export each) { return each.held_back; });
}

void add_limits(Exposition& out, const Exports& exports) {
    out.family({"gpunbd_export_limit_bytes_per_second", MetricType::gauge,
                "Most data a second; missing where there is no such limit."});
    for (const ExportStatus& each : exports) {
        if (!each.rates.bytes_per_second) continue;
        out.add({{"export", each.name}}, *each.rates.bytes_per_second);
    }
    out.family({"gpunbd_export_limit_requests_per_second", MetricType::gauge,
                "Most requests a second; missing where there is no such limit."});
    for (const ExportStatus& each : exports) {
        if (each.rates.iops) out.add({{"export", each.name}}, *each.rates.iops);
    }
    out.family({"gpunbd_export_limit_burst_seconds", MetricType::gauge,
                "As much as these limits let pass in that time may come at once."});
    for (const ExportStatus& each : exports) {
        const bool limited = each.rates.bytes_per_second || each.rates.iops;
        if (limited) out.add({{"export", each.name}}, each.rates.burst);
    }
}

void add_memory(Exposition& out, const Exports& exports) {
    struct Number {
        MetricFamily family;
        std::uint64_t ExportMemory::*value;
    };
    constexpr Number numbers[] = {
        {{"gpunbd_export_memory_used_bytes", MetricType::gauge,
          "Memory of the export's pages on a device."},
         &ExportMemory::used},
        {{"gpunbd_export_memory_allocated_bytes", MetricType::gauge,
          "Memory allocated there for them."},
         &ExportMemory::allocated},
        {{"gpunbd_export_slabs", MetricType::gauge, "Pieces in which that is allocated."},
         &ExportMemory::slabs},
    };
    for (const Number& number : numbers) {
        out.family(number.family);
        for (const ExportStatus& each : exports) {
            for (const ExportMemory& memory : each.memory) {
                out.add({{"export", each.name}, {"device", memory.device}}, memory.*number.value);
            }
        }
    }
}

// One sample of each type of requests of each export.
void add_each_type(Exposition& out, const Exports& exports, const MetricFamily& family,
                   auto member) {
    out.family(family);
    for (const ExportStatus& each : exports) {
        for (const RequestStatus& requests : each.requests) {
            out.add({{"export", each.name}, {"type", requests.type}}, requests.*member);
        }
    }
}

// What may come is there before it comes: no rate can be told of a counter that begins with 1.
CountsByReason with_expected(const CountsByReason& errors) {
    CountsByReason all = {{"EIO", 0}, {"ENOSPC", 0}};
    for (const auto& [error, count] : errors) all[error] = count;
    return all;
}

void add_errors(Exposition& out, const Exports& exports) {
    out.family({"gpunbd_export_request_errors", MetricType::counter,
                "Requests that were answered by an error."});
    for (const ExportStatus& each : exports) {
        for (const RequestStatus& requests : each.requests) {
            for (const auto& [error, count] : with_expected(requests.errors)) {
                out.add({{"export", each.name}, {"type", requests.type}, {"error", error}}, count);
            }
        }
    }
}

void add_requests(Exposition& out, const Exports& exports) {
    add_each_type(
        out, exports,
        {"gpunbd_export_requests", MetricType::counter, "Requests that have been answered."},
        &RequestStatus::requests);
    add_each_type(
        out, exports,
        {"gpunbd_export_request_bytes", MetricType::counter, "Bytes that those were about."},
        &RequestStatus::bytes);
    add_each_type(
        out, exports,
        {"gpunbd_export_requests_in_flight", MetricType::gauge, "Requests not yet answered."},
        &RequestStatus::in_flight);
    add_errors(out, exports);
    add_each_type(out, exports,
                  {"gpunbd_export_request_duration_seconds", MetricType::histogram,
                   "From a request's coming off the socket until its answer is ready; of those "
                   "that are timed."},
                  &RequestStatus::latency);
}

}  // namespace

void add_export_metrics(Exposition& out, const Status& status) {
    add_infos(out, status.exports);
    add_numbers(out, status.exports);
    add_limits(out, status.exports);
    add_memory(out, status.exports);
    add_requests(out, status.exports);
}

}  // namespace gpunbd::server
