// The tables of the status structures of exports.
#include <array>
#include <cstdint>

#include "server/admin/model/field_kinds.hpp"
#include "server/admin/model/status.hpp"
#include "storage/base/origin_times.hpp"

namespace gpunbd::server {

FieldsOf<ExportCounts<std::uint64_t>> fields_of(const ExportCounts<std::uint64_t>&) {
    using Self = ExportCounts<std::uint64_t>;
    return std::to_array<Field>(
        {counter("held_back", &Self::held_back, "gpunbd_export_requests_held_back",
                 "Requests delayed by the export's limits.")});
}
FieldsOf<RequestCounts<std::uint64_t>> fields_of(const RequestCounts<std::uint64_t>&) {
    using Self = RequestCounts<std::uint64_t>;
    return std::to_array<Field>(
        {counter("requests", &Self::requests, "gpunbd_export_requests",
                 "Answered requests; missing until the first request of the type."),
         counter("bytes", &Self::bytes, "gpunbd_export_request_bytes",
                 "Bytes of the answered requests; of reads, the bytes sent."),
         counters("errors", &Self::errors, "error", "gpunbd_export_request_errors",
                  "Requests answered with an error.", Self::expected_errors),
         histogram("latency", &Self::latency, "gpunbd_export_request_duration_seconds",
                   "Time from receiving a request until its reply is ready, of the requests that "
                   "are timed.")});
}

const Structure& RequestStatus::structure() {
    using Self = RequestStatus;
    static const Structure made = structure_of<Self>(
        {"Requests", "Requests of one type."},
        {label("type", &Self::type, "type", "Lower-case name of the protocol, or unknown.")
             .one_of(types),
         gauge("in_flight", &Self::in_flight, "gpunbd_export_requests_in_flight",
               "Requests not yet answered.")});
    return made;
}

const Structure& RateStatus::structure() {
    using Self = RateStatus;
    // The ranges are those of `rates` in config/schema.cpp.
    static const Structure made = structure_of<Self>(
        {"Rates"}, {
                       gauge("bytes_per_second", &Self::bytes_per_second,
                             "gpunbd_export_limit_bytes_per_second",
                             "Limit on data per second; missing if there is none.")
                           .within(64 << 10, std::uint64_t{1} << 40),
                       gauge("iops", &Self::iops, "gpunbd_export_limit_requests_per_second",
                             "Limit on requests per second; missing if there is none.")
                           .within(1, 1'000'000'000),
                       gauge("burst", &Self::burst, "gpunbd_export_limit_burst_seconds",
                             "Time whose share of the limits may be used at once.",
                             [](const Self& self) { return self.limited(); })
                           .within(0, 3600),
                   });
    return made;
}

const Structure& LastSecond::structure() {
    using Self = LastSecond;
    static const Structure made = structure_of<Self>(
        {"LastSecond",
         "Latencies of the requests that were timed in the last second, and the longest request of "
         "the last whole second; 0 if there were none."},
        {field("read_p50", &Self::read_p50), field("read_p99", &Self::read_p99),
         field("write_p50", &Self::write_p50), field("write_p99", &Self::write_p99),
         field("longest", &Self::longest)});
    return made;
}

const Structure& WaitStatus::structure() {
    using Self = WaitStatus;
    static const Structure made = structure_of<Self>(
        {"Wait", "The part of a request's duration that it spent waiting for one thing."},
        {label("stage", &Self::stage, "stage",
               "`queue`: behind other requests of its connection, or for the limits of rates. "
               "`payload`: for the payload of a write. `memory`: for pages and for staging "
               "memory. `device`: for copies. `socket`: until earlier parts of the reply were "
               "sent. `worker`: the rest, for the worker thread.")
             .one_of(wait_stages),
         gauge("seconds", &Self::seconds, "gpunbd_export_longest_request_wait_seconds",
               "Where the longest request of the last minute waited.")});
    return made;
}

const Structure& LongestRequest::structure() {
    using Self = LongestRequest;
    static const Structure made = structure_of<Self>(
        {"LongestRequest",
         "The request that took longest, from its receipt until its reply was ready."},
        {field("type", &Self::type, "Type of the request; empty: there was no request."),
         gauge("seconds", &Self::seconds, "gpunbd_export_longest_request_seconds",
               "Duration of the longest request that was answered in the last minute, from its "
               "receipt until its reply was ready; 0 without requests."),
         field("age", &Self::age, "Whole seconds since it ended."), part("waits", &Self::waits)});
    return made;
}

const Structure& ExportMemory::structure() {
    using Self = ExportMemory;
    static const Structure made = structure_of<Self>(
        {"Memory", "Memory of an export on one device."},
        {
            label("device", &Self::device, "device"),
            label("home", &Self::home, "home",
                  "The device that these pages have left; empty: they are where they belong."),
            gauge("used", &Self::used, "gpunbd_export_memory_used_bytes",
                  "Memory of the export's pages on a device, with pages that it shares."),
            gauge("allocated", &Self::allocated, "gpunbd_export_memory_allocated_bytes",
                  "Memory allocated there for the export."),
            gauge("slabs", &Self::slabs, "gpunbd_export_slabs",
                  "Slabs that this memory is allocated in."),
        });
    return made;
}

const Structure& TemplateStatus::structure() {
    using Self = TemplateStatus;
    static const Structure made = structure_of<Self>(
        {"Template",
         "An export that makes a clone of this one for each client (clone_per_client)."},
        {
            field("name", &Self::name),
            field("clones", &Self::clones, "Clones that it has made and that exist."),
            field("max", &Self::max, "Maximum of its clones."),
        });
    return made;
}

const Structure& OriginRequests::structure() {
    using Self = OriginRequests;
    static const Structure made = structure_of<Self>(
        {"OriginRequests", "Requests to an origin of one operation; durations in seconds."},
        {
            label("operation", &Self::operation, "operation").one_of(storage::OriginTimes::names),
            histogram({}, &Self::latency, "gpunbd_origin_request_seconds",
                      "Time that requests to the origin take, with or without an error; missing "
                      "until the first request of the operation."),
            field("count", &Self::count),
            field("p50", &Self::p50),
            field("p99", &Self::p99),
            field("longest", &Self::longest),
        });
    return made;
}

const Structure& OriginStatus::structure() {
    using Self = OriginStatus;
    static const Structure made = structure_of<Self>(
        {"Origin",
         "What provides the contents of an export: a file, a block device or an export of another "
         "server."},
        {
            label("path", &Self::path, "path"),
            counter("misses", &Self::misses, "gpunbd_origin_misses",
                    "Requests that waited for a page of the origin."),
            counter("fetched", &Self::fetched, "gpunbd_origin_fetched_pages",
                    "Pages that came into memory because a client needed a part of them."),
            counter("prefetched", &Self::prefetched, "gpunbd_origin_prefetched_pages",
                    "Pages that came into memory ahead of a client."),
            counter("wasted", &Self::wasted, "gpunbd_origin_wasted_pages",
                    "Pages that were read ahead and dropped before a client used them."),
            counter("evicted", &Self::evicted, "gpunbd_origin_evicted_pages",
                    "Pages that were dropped from memory."),
            counter("errors", &Self::errors, "gpunbd_origin_errors",
                    "Reads, writes and flushes of the origin that failed."),
            counter("written", &Self::written, "gpunbd_origin_written_bytes",
                    "Bytes that were written to the origin."),
            gauge("unwritten", &Self::unwritten, "gpunbd_origin_unwritten_bytes",
                  "Bytes that the origin does not have yet."),
            gauge("unwritten_age", &Self::unwritten_age, "gpunbd_origin_unwritten_age_seconds",
                  "Age of the oldest change that the origin does not have yet."),
            counter("read_bytes", &Self::read_bytes, "gpunbd_origin_read_bytes",
                    "Bytes that were read from the origin."),
            part("requests", &Self::requests, "Of each operation that it has received."),
        });
    return made;
}

const Structure& ExportStatus::structure() {
    using Self = ExportStatus;
    static const Structure made = structure_of<Self>(
        {"Export"},
        {
            label("name", &Self::name, "export"),
            info("description", &Self::description, "description"),
            gauge("size", &Self::size, "gpunbd_export_size_bytes", "Size of the export."),
            gauge("page_size", &Self::page_size, "gpunbd_export_page_size_bytes",
                  "Size of its pages."),
            info("layout", &Self::layout, "layout").one_of(layouts),
            info("provision", &Self::provision, "provision").one_of(provisions),
            gauge("read_only", &Self::read_only, "gpunbd_export_read_only",
                  "1: the export is read-only."),
            info("keep", &Self::keep, "keep"),
            info("swap", &Self::swap, "swap"),
            field("run_time", &Self::run_time),
            field("persistent", &Self::persistent),
            field("created", &Self::created,
                  "Time at which it was created at run time; null: the configuration has it."),
            field("clone_of", &Self::clone_of),
            field("snapshot", &Self::snapshot, "It is a snapshot: its contents never change."),
            part("templates", &Self::templates),
            part("origins", &Self::origins),
            info("instance", &Self::instance, "contents"),
            calculated<Self>("used",
                             [](const Self& self) { return self.sum(&ExportMemory::used); }),
            calculated<Self>("allocated",
                             [](const Self& self) { return self.sum(&ExportMemory::allocated); }),
            part("memory", &Self::memory),
            gauge("own", &Self::own, "gpunbd_export_own_bytes",
                  "Memory of pages that no other export has."),
            gauge("shared", &Self::shared, "gpunbd_export_shared_bytes",
                  "Memory of pages that it shares with snapshots and clones."),
            gauge("connections", &Self::connections, "gpunbd_export_connections",
                  "Connections that have the export open."),
            gauge("stalled", &Self::stalled, "gpunbd_export_stalled_connections",
                  "Connections with waiting replies on which the client has accepted no data for "
                  "five seconds or more."),
            part("rates", &Self::rates, "Limits of all clients together."),
            field("rates_per_peer", &Self::rates_per_peer, "Limits of each client."),
            part("requests", &Self::requests),
            field("last_second", &Self::last_second),
            part("longest", &Self::longest, "Of the last minute."),
        },
        {"gpunbd_export", MetricType::info,
         "Properties of the exports that do not change; contents: the id of an export's "
         "contents."});
    return made;
}

const Structure& ContentsStatus::structure() {
    using Self = ContentsStatus;
    static const Structure made = structure_of<Self>(
        {"Contents", "Contents that no export of the server has."},
        {
            field("name", &Self::name, "The export that they were made for."),
            field("size", &Self::size),
            calculated<Self>("used",
                             [](const Self& self) { return self.sum(&ExportMemory::used); }),
            calculated<Self>("allocated",
                             [](const Self& self) { return self.sum(&ExportMemory::allocated); }),
            field("own", &Self::own, "Memory of pages that nothing else has."),
            field("shared", &Self::shared, "Memory of pages that exports or other contents share."),
            field("memory", &Self::memory,
                  "Memory by device; empty if the contents could not be taken over."),
            field("state", &Self::state,
                  "`no export has them`, the reason why their export does not have them, or `in "
                  "use`: by clients of an export that was removed, or by one that is being made."),
            field("freed_in", &Self::freed_in,
                  "Seconds until they are freed, or earlier if their memory is needed; null: they "
                  "stay."),
        });
    return made;
}

}  // namespace gpunbd::server
