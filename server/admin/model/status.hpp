// The state of a server at one moment, as plain values. fields() of each structure describes its
// members once for all readers and writers: metrics, JSON, and the tools that read the JSON. To add
// a value or a metric, add a member and its field; what workers count is in
// server/counters/counts.hpp. Counters only grow, from the start of the process. Times are in
// seconds since 1970, durations in seconds, sizes in bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/counters/counts.hpp"

namespace gpunbd::server {

// Requests of one type of an export.
struct RequestStatus : RequestCounts<std::uint64_t> {
    using Counts = RequestCounts<std::uint64_t>;

    std::string type = {};  // one of `types`
    std::uint64_t in_flight = 0;

    static constexpr std::array<std::string_view, 8> types{
        "read", "write", "trim", "write_zeroes", "flush", "cache", "block_status", "unknown"};
    static constexpr Schema schema{"Requests", "Requests of one type."};
    static constexpr auto fields() {
        using Self = RequestStatus;
        return std::tuple{
            label("type", &Self::type, "type", "Lower-case name of the protocol, or unknown.")
                .one_of(types),
            gauge("in_flight", &Self::in_flight, "gpunbd_export_requests_in_flight",
                  "Requests not yet answered.")};
    }
};

struct RateStatus {
    std::optional<std::uint64_t> bytes_per_second = {};
    std::optional<std::uint64_t> iops = {};
    double burst = 1;

    bool limited() const { return bytes_per_second || iops; }
    // The ranges are those of `rates` in config/schema.cpp.
    static constexpr Schema schema{"Rates"};
    static constexpr auto fields() {
        using Self = RateStatus;
        return std::tuple{
            gauge("bytes_per_second", &Self::bytes_per_second,
                  "gpunbd_export_limit_bytes_per_second",
                  "Limit on data per second; missing if there is none.")
                .within(64 << 10, std::uint64_t{1} << 40),
            gauge("iops", &Self::iops, "gpunbd_export_limit_requests_per_second",
                  "Limit on requests per second; missing if there is none.")
                .within(1, 1'000'000'000),
            gauge(
                "burst", &Self::burst, "gpunbd_export_limit_burst_seconds",
                "Time whose share of the limits may be used at once.",
                +[](const Self& self) { return self.limited(); })
                .within(0, 3600),
        };
    }
};

// Latencies of the requests that were timed in the last second, in seconds; 0: none.
struct LastSecond {
    double read_p50 = 0;
    double read_p99 = 0;
    double write_p50 = 0;
    double write_p99 = 0;

    static constexpr Schema schema{
        "LastSecond",
        "Latencies of the requests that were timed in the last second; 0 if there were none."};
    static constexpr auto fields() {
        using Self = LastSecond;
        return std::tuple{field("read_p50", &Self::read_p50), field("read_p99", &Self::read_p99),
                          field("write_p50", &Self::write_p50),
                          field("write_p99", &Self::write_p99)};
    }
};

struct ExportMemory {
    std::string device = {};
    std::uint64_t used = 0;
    std::uint64_t allocated = 0;
    std::uint64_t slabs = 0;
    std::string home = {};  // of spill memory

    static constexpr Schema schema{"Memory", "Memory of an export on one device."};
    static constexpr auto fields() {
        using Self = ExportMemory;
        return std::tuple{
            label("device", &Self::device, "device"),
            label("home", &Self::home, "home",
                  "The device that these pages have left; empty: they are where they belong."),
            gauge("used", &Self::used, "gpunbd_export_memory_used_bytes",
                  "Memory of the export's pages on a device, with pages that it shares."),
            gauge("allocated", &Self::allocated, "gpunbd_export_memory_allocated_bytes",
                  "Memory allocated there for the export."),
            gauge("slabs", &Self::slabs, "gpunbd_export_slabs",
                  "Slabs that this memory is allocated in."),
        };
    }
};

struct TemplateStatus {
    std::string name = {};
    std::uint64_t clones = 0;
    std::uint64_t max = 0;

    static constexpr Schema schema{
        "Template", "An export that makes a clone of this one for each client (clone_per_client)."};
    static constexpr auto fields() {
        using Self = TemplateStatus;
        return std::tuple{
            field("name", &Self::name),
            field("clones", &Self::clones, "Clones that it has made and that exist."),
            field("max", &Self::max, "Maximum of its clones."),
        };
    }
};

struct ExportStatus : ExportCounts<std::uint64_t> {
    using Counts = ExportCounts<std::uint64_t>;

    std::string name = {};
    std::string description = {};
    std::uint64_t size = 0;
    std::uint64_t page_size = 0;
    std::string layout = {};     // one of `layouts`
    std::string provision = {};  // one of `provisions`
    bool read_only = false;
    bool keep = false;
    bool swap = false;
    bool run_time = false;
    bool persistent = false;
    std::optional<std::uint64_t> created = {};  // unset: by the configuration, or unknown
    std::string clone_of = {};                  // another export; empty: none
    bool snapshot = false;
    std::vector<TemplateStatus> templates = {};
    std::string instance = {};              // identifies its contents; hexadecimal
    std::vector<ExportMemory> memory = {};  // of its devices, in their order
    std::uint64_t own = 0;
    std::uint64_t shared = 0;
    std::uint32_t connections = 0;
    std::uint32_t stalled = 0;
    RateStatus rates = {};                     // of all clients together
    RateStatus rates_per_peer = {};            // of each client
    std::vector<RequestStatus> requests = {};  // of the types that it has received
    LastSecond last_second = {};

    std::uint64_t sum(std::uint64_t ExportMemory::*value) const {
        std::uint64_t all = 0;
        for (const ExportMemory& each : memory) all += each.*value;
        return all;
    }
    static constexpr std::array<std::string_view, 2> layouts{"linear", "stripe"};
    static constexpr std::array<std::string_view, 2> provisions{"thin", "full"};
    static constexpr Schema schema{"Export"};
    static constexpr Metric info_metric{
        "gpunbd_export", MetricType::info,
        "Properties of the exports that do not change; contents: the id of an export's contents."};
    static constexpr auto fields() {
        using Self = ExportStatus;
        return std::tuple{
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
            info("instance", &Self::instance, "contents"),
            calculated(
                "used", +[](const Self& self) { return self.sum(&ExportMemory::used); }),
            calculated(
                "allocated", +[](const Self& self) { return self.sum(&ExportMemory::allocated); }),
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
        };
    }
};

// Memory that no export of the server has.
struct ContentsStatus {
    std::string name = {};  // of the export that they were made for
    std::uint64_t size = 0;
    std::uint64_t own = 0;
    std::uint64_t shared = 0;
    std::vector<ExportMemory> memory = {};
    std::string state = {};
    std::optional<double> freed_in = {};

    std::uint64_t sum(std::uint64_t ExportMemory::*value) const {
        std::uint64_t all = 0;
        for (const ExportMemory& each : memory) all += each.*value;
        return all;
    }
    static constexpr std::string_view in_use = "in use";
    static constexpr Schema schema{"Contents", "Contents that no export of the server has."};
    static constexpr auto fields() {
        using Self = ContentsStatus;
        return std::tuple{
            field("name", &Self::name, "The export that they were made for."),
            field("size", &Self::size),
            calculated(
                "used", +[](const Self& self) { return self.sum(&ExportMemory::used); }),
            calculated(
                "allocated", +[](const Self& self) { return self.sum(&ExportMemory::allocated); }),
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
        };
    }
};

struct CopyStatus {
    std::string path = {};       // "mapping", "copy engine", "kernel", ...
    std::string direction = {};  // one of `directions`
    std::uint64_t copies = 0;
    std::uint64_t bytes = 0;

    static constexpr std::array<std::string_view, 3> directions{"read", "write", "zero"};
    static constexpr Schema schema{"Copies"};
    static constexpr auto fields() {
        using Self = CopyStatus;
        return std::tuple{
            label("path", &Self::path, "path"),
            label("direction", &Self::direction, "direction").one_of(directions),
            counter("copies", &Self::copies, "gpunbd_device_copies",
                    "Copies, by path and direction."),
            counter("bytes", &Self::bytes, "gpunbd_device_copied_bytes", "Bytes copied.")};
    }
};

// Memory of a device that an administrator has taken from the exports.
struct ClaimStatus {
    std::uint64_t id = 0;
    std::string owner = {};
    std::optional<std::uint64_t> asked = {};  // unset: all
    std::uint64_t bytes = 0;
    double age = 0;                      // in seconds
    std::optional<double> ends_in = {};  // in seconds; unset: when it is ended

    static constexpr Schema schema{
        "Claim", "Memory of a device that was given back to other programs on request."};
    static constexpr auto fields() {
        using Self = ClaimStatus;
        return std::tuple{
            field("id", &Self::id, "For /reclaim/end."),
            field("owner", &Self::owner, "The client that asked for it."),
            field("asked", &Self::asked, "Bytes asked for; null: all."),
            field("bytes", &Self::bytes, "Bytes by which exports use less, because of this claim."),
            field("age", &Self::age,
                  "Seconds since the request, also if the clock was set meanwhile."),
            field("ends_in", &Self::ends_in, "Seconds until it ends by itself; null: never."),
        };
    }
};

struct DeviceStatus {
    std::string id = {};
    std::string name = {};
    bool failed = false;
    std::uint64_t total = 0;
    std::uint64_t available = 0;
    std::uint64_t reserve = 0;
    std::uint64_t mapped = 0;
    std::uint64_t allocated = 0;
    std::uint64_t used = 0;
    std::uint64_t slabs = 0;
    std::uint64_t staging = 0;
    std::uint64_t staging_used = 0;
    std::uint64_t staging_waits = 0;
    std::uint64_t failures = 0;
    std::vector<CopyStatus> copies = {};
    std::optional<bool> others_compute = {};  // unset: not known, or not a GPU
    std::uint64_t competition_noticed = 0;
    bool reclaimable = false;
    std::uint64_t revocable = 0;
    std::uint64_t yielded = 0;
    std::uint64_t evictions = 0;
    std::uint64_t spilled = 0;
    std::optional<std::uint64_t> limit = {};  // of `allocated`
    std::uint64_t withheld = 0;
    std::vector<ClaimStatus> claims = {};
    std::uint64_t moved_out = 0;
    std::uint64_t moved_back = 0;
    std::uint64_t not_reclaimed = 0;
    std::optional<double> last_reclaim = {};

    static constexpr Schema schema{"Device"};
    static constexpr Metric info_metric{"gpunbd_device", MetricType::info,
                                        "The devices and their names."};
    static constexpr auto fields() {
        using Self = DeviceStatus;
        return std::tuple{
            label("id", &Self::id, "device"),
            info("name", &Self::name, "name"),
            gauge("failed", &Self::failed, "gpunbd_device_failed",
                  "1: the device has failed permanently."),
            gauge("total", &Self::total, "gpunbd_device_memory_size_bytes",
                  "Memory of the device: its capacity, where that is set, or else all of it."),
            gauge(
                "available", &Self::available, "gpunbd_device_memory_available_bytes",
                "Memory that exports can still allocate: what is free, or less while a limit is in "
                "effect."),
            gauge("reserve", &Self::reserve, "gpunbd_device_memory_reserve_bytes",
                  "Memory left to other programs."),
            gauge("mapped", &Self::mapped, "gpunbd_device_memory_mapped_bytes",
                  "Memory mapped for the CPU."),
            gauge("allocated", &Self::allocated, "gpunbd_device_memory_allocated_bytes",
                  "Memory that the server has allocated."),
            gauge("used", &Self::used, "gpunbd_device_memory_used_bytes",
                  "Memory of pages that exports use. A page that several exports share counts "
                  "once."),
            gauge("slabs", &Self::slabs, "gpunbd_device_slabs",
                  "Slabs that memory is allocated in."),
            gauge("staging", &Self::staging, "gpunbd_device_staging_bytes",
                  "Staging memory for copies, of all workers."),
            gauge("staging_used", &Self::staging_used, "gpunbd_device_staging_used_bytes",
                  "Staging memory that transfers hold now."),
            counter("staging_waits", &Self::staging_waits, "gpunbd_device_staging_waits",
                    "Transfers that waited for pinned memory."),
            counter("failures", &Self::failures, "gpunbd_device_copy_failures",
                    "Copies that failed."),
            part("copies", &Self::copies),
            gauge("others_compute", &Self::others_compute, "gpunbd_device_others_compute",
                  "1: other programs compute on the device; missing if that is not known."),
            counter("competition_noticed", &Self::competition_noticed,
                    "gpunbd_device_competition_noticed",
                    "How often other programs were seen to start computing."),
            field("reclaimable", &Self::reclaimable,
                  "Whether its memory can be given back to other programs."),
            gauge("revocable", &Self::revocable, "gpunbd_device_memory_revocable_bytes",
                  "Allocated memory that the driver moves to host memory for other programs."),
            gauge("yielded", &Self::yielded, "gpunbd_device_memory_yielded_bytes",
                  "Revocable memory that may be in host memory, because other programs have taken "
                  "some of it."),
            counter("evictions", &Self::evictions, "gpunbd_device_evictions",
                    "How often other programs were seen to take revocable memory."),
            gauge("spilled", &Self::spilled, "gpunbd_device_memory_spilled_bytes",
                  "Memory of pages that have left the device for spill memory."),
            gauge("limit", &Self::limit, "gpunbd_device_memory_limit_bytes",
                  "Limit on the allocated memory, while memory is given back to other programs; "
                  "missing if there is none."),
            gauge("withheld", &Self::withheld, "gpunbd_device_memory_withheld_bytes",
                  "Free memory that exports do not use because of the limit."),
            field("claims", &Self::claims, "The requests for memory of the device in effect."),
            counter("moved_out", &Self::moved_out, "gpunbd_device_moved_out_bytes",
                    "Memory of pages that were moved to spill memory."),
            counter("moved_back", &Self::moved_back, "gpunbd_device_moved_back_bytes",
                    "Memory of pages that were moved back."),
            counter("not_reclaimed", &Self::not_reclaimed, "gpunbd_device_not_reclaimed_bytes",
                    "Memory that was to be given back and was not, because pages had to stay."),
            gauge("last_reclaim", &Self::last_reclaim,
                  "gpunbd_device_last_reclaim_timestamp_seconds",
                  "When memory was last given back, since 1970; missing if it never was."),
        };
    }
};

struct ConnectionStatus : ConnectionCounts<std::uint64_t> {
    using Counts = ConnectionCounts<std::uint64_t>;

    std::uint64_t id = 0;
    std::string peer = {};
    std::string listener = {};
    std::string export_name = {};
    bool serving = false;  // false: it negotiates
    bool read_only = false;
    double age = 0;             // in seconds, whatever happens to the clock
    std::string tls = {};       // "TLS 1.3, TLS_AES_256_GCM_SHA384"; empty: no TLS
    std::string identity = {};  // that the client has proved in TLS
    double stalled = 0;         // for how long the client has not read its replies; 0: not stalled

    static constexpr Schema schema{"Connection"};
    static constexpr auto fields() {
        using Self = ConnectionStatus;
        return std::tuple{
            field("id", &Self::id),
            field("peer", &Self::peer),
            field("listener", &Self::listener),
            nullable(
                "export", &Self::export_name, +[](const Self& self) { return self.serving; },
                "null: the client is still negotiating."),
            field("serving", &Self::serving),
            field("read_only", &Self::read_only),
            field("age", &Self::age,
                  "Seconds since the client connected, also if the clock was set meanwhile."),
            nullable(
                "tls", &Self::tls, +[](const Self& self) { return !self.tls.empty(); }),
            nullable(
                "identity", &Self::identity,
                +[](const Self& self) { return !self.identity.empty(); }),
            field("stalled", &Self::stalled,
                  "Seconds since the client stopped reading its replies, if these are five or "
                  "more; otherwise 0."),
        };
    }
};

// Contents that outlive the server. Unset and empty members are not known.
struct KeptStatus {
    std::string name = {};  // of the export that they were created for
    std::optional<std::uint64_t> size = {};
    std::optional<std::uint64_t> used = {};  // memory
    std::string devices = {};                // "host, GPU-..."
    std::optional<std::int64_t> made = {};   // seconds since 1970
    std::string instance = {};
    std::string state = {};  // "in use", "no export has them", or a reason

    static constexpr Schema schema{"Kept",
                                   "Contents that outlive the server. Unknown values are null."};
    static constexpr auto fields() {
        using Self = KeptStatus;
        return std::tuple{
            field("name", &Self::name),
            field("size", &Self::size),
            field("used", &Self::used),
            nullable(
                "devices", &Self::devices, +[](const Self& self) { return !self.devices.empty(); }),
            field("made", &Self::made, "In seconds since 1970."),
            nullable(
                "instance", &Self::instance,
                +[](const Self& self) { return !self.instance.empty(); }),
            field("state", &Self::state,
                  "`in use`, `no export has them`, or the reason why they could not be taken "
                  "over."),
        };
    }
};

struct MovedStatus {
    std::string device = {};
    std::uint64_t bytes = 0;

    static constexpr Schema schema{"Moved", "Pages that were moved to a device."};
    static constexpr auto fields() {
        using Self = MovedStatus;
        return std::tuple{field("device", &Self::device), field("bytes", &Self::bytes)};
    }
};

// The result of giving memory of one device back to other programs, or of ending that.
struct ReclaimStatus {
    std::string device = {};
    std::uint64_t wanted = 0;
    std::uint64_t released = 0;
    std::uint64_t freed = 0;
    std::vector<MovedStatus> moved = {};
    double seconds = 0;
    std::string why_not = {};                 // empty: complete
    std::optional<std::uint64_t> claim = {};  // unset: none is in effect
    std::optional<std::uint64_t> limit = {};  // unset: there is none

    bool complete() const { return why_not.empty(); }
    static constexpr Schema schema{"Reclaim"};
    static constexpr auto fields() {
        using Self = ReclaimStatus;
        return std::tuple{
            field("device", &Self::device),
            field("wanted", &Self::wanted, "Bytes to give back to other programs; 0 at the end."),
            field("released", &Self::released, "Bytes given back; more than wanted, if slabs are."),
            field("freed", &Self::freed, "Of these, bytes of contents that no export had."),
            field("moved", &Self::moved, "Where pages were moved."),
            field("seconds", &Self::seconds),
            nullable(
                "why_not", &Self::why_not, +[](const Self& self) { return !self.complete(); },
                "Why pages stay where they are; null if it is done."),
            field("claim", &Self::claim,
                  "The id of the request while it is in effect; null at the end, and if nothing "
                  "was given back."),
            field("limit", &Self::limit,
                  "What exports may use of the device from now on; null: there is no limit."),
        };
    }
};

struct EventStatus {
    std::uint64_t id = 0;  // grows by one
    double time = 0;
    std::string level = {};   // "info", "warning", "error", ...
    std::string text = {};    // the line of the log
    std::string fields = {};  // the fields of the line: a JSON object
};

// A certificate, or a list of revoked ones, of TLS.
struct CertificateStatus {
    std::string file = {};
    std::uint64_t expires = 0;

    static constexpr Schema schema{"Certificate"};
    static constexpr auto fields() {
        using Self = CertificateStatus;
        return std::tuple{
            label("file", &Self::file, "file"),
            gauge("expires", &Self::expires, "gpunbd_certificate_expiry_timestamp_seconds",
                  "When connections in TLS begin to fail unless the file is replaced, since 1970."),
        };
    }
};

// An operation that takes long.
struct ProgressStatus {
    std::string what = {};  // "provisioning", "taking over", "calibrating", "draining"
    std::string of = {};    // the export or the device
    std::uint64_t done = 0;
    std::uint64_t total = 0;  // 0: not known
    std::string unit = {};    // one of `units`

    static constexpr std::array<std::string_view, 2> units{"bytes", "connections"};
    static constexpr Schema schema{"Progress"};
    static constexpr auto fields() {
        using Self = ProgressStatus;
        return std::tuple{
            label("what", &Self::what, "what"),
            label("of", &Self::of, "of"),
            gauge("done", &Self::done, "gpunbd_progress_done",
                  "How much of a long operation is done; missing while there is none."),
            gauge(
                "total", &Self::total, "gpunbd_progress_expected",
                "Total of a long operation; missing if it is not known, and 0 in JSON.",
                +[](const Self& self) { return self.total != 0; }),
            label("unit", &Self::unit, "unit").one_of(units),
        };
    }
};

struct ProcessStatus {
    std::string version = {};
    std::string commit = {};
    std::string build = {};  // "Release, CUDA 12.4" and the like
    std::uint64_t pid = 0;
    double started = 0;
    double uptime = 0;  // seconds, whatever happens to the clock
    double cpu_seconds = 0;
    std::uint64_t resident = 0;
    std::uint64_t open_files = 0;
    std::uint64_t max_open_files = 0;
    std::uint32_t workers = 0;
    std::string state = {};  // one of `states`

    static constexpr std::array<std::string_view, 3> states{"starting", "serving", "draining"};
    CountsByReason by_state() const {
        CountsByReason out;
        for (const std::string_view each : states) out.emplace(each, each == state);
        return out;
    }
    static constexpr Schema schema{"Process"};
    static constexpr Metric info_metric{"gpunbd_build", MetricType::info,
                                        "The version of the server and how it was built."};
    // The names that begin with process_ are those of Prometheus's own clients.
    static constexpr auto fields() {
        using Self = ProcessStatus;
        return std::tuple{
            info("version", &Self::version, "version"),
            info("commit", &Self::commit, "commit"),
            info("build", &Self::build, "build"),
            gauge("pid", &Self::pid, "gpunbd_process_id", "Process id."),
            gauge("started", &Self::started, "process_start_time_seconds",
                  "Start of the process, since 1970."),
            field("uptime", &Self::uptime,
                  "Seconds since the start, also if the clock was set meanwhile."),
            counter(
                "cpu_seconds", &Self::cpu_seconds, "process_cpu_seconds",
                "CPU time used, in user and system mode; workers that poll use it without work."),
            gauge("resident", &Self::resident, "process_resident_memory_bytes", "Resident memory."),
            gauge("open_files", &Self::open_files, "process_open_fds", "Open file descriptors."),
            gauge("max_open_files", &Self::max_open_files, "process_max_fds",
                  "Limit on open file descriptors."),
            gauge("workers", &Self::workers, "gpunbd_workers", "Threads that serve requests."),
            field("state", &Self::state).one_of(states),
            only_gauge(
                "gpunbd_state", "1 for the state that the server is in.",
                +[](const Self& self) { return self.by_state(); }, "state"),
        };
    }
};

struct Status : WorkerCounts<std::uint64_t> {
    using Counts = WorkerCounts<std::uint64_t>;

    double time = 0;
    ProcessStatus process;
    std::vector<ProgressStatus> progress = {};
    std::vector<CertificateStatus> certificates = {};
    std::uint64_t accepted = 0;
    CountsByReason refused = {};
    std::vector<DeviceStatus> devices = {};
    std::vector<ExportStatus> exports = {};
    std::vector<ContentsStatus> contents = {};  // without an export
    std::vector<ConnectionStatus> connections = {};

    // Connections are counted by their properties: each client would leave series behind.
    std::uint64_t connections_with(bool (*property)(const ConnectionStatus&)) const {
        return static_cast<std::uint64_t>(std::ranges::count_if(connections, property));
    }
    std::uint64_t own_of_contents() const {
        std::uint64_t all = 0;
        for (const ContentsStatus& each : contents) all += each.own;
        return all;
    }
    CountsByReason connections_by_state() const {
        const auto serving =
            connections_with([](const ConnectionStatus& each) { return each.serving; });
        return {{"negotiating", connections.size() - serving}, {"serving", serving}};
    }
    CountsByReason connections_by_listener() const {
        CountsByReason out;
        for (const ConnectionStatus& each : connections) ++out[each.listener];
        return out;
    }
    static constexpr Schema schema{
        "Status", "The state of the server, without connections, events and maps."};
    static constexpr auto fields() {
        using Self = Status;
        return std::tuple{
            gauge("time", &Self::time, "gpunbd_time_seconds",
                  "When these values were taken, since 1970."),
            part("process", &Self::process),
            part("progress", &Self::progress),
            part("certificates", &Self::certificates),
            counter("accepted", &Self::accepted, "gpunbd_connections_accepted",
                    "Accepted connections."),
            calculated(
                "connections", +[](const Self& self) { return self.connections.size(); },
                "Current connections."),
            only_gauge(
                "gpunbd_connections", "Current connections.",
                +[](const Self& self) { return self.connections_by_state(); }, "state"),
            only_gauge(
                "gpunbd_tls_connections", "Current connections in TLS.",
                +[](const Self& self) {
                    return self.connections_with(
                        [](const ConnectionStatus& each) { return !each.tls.empty(); });
                }),
            only_gauge(
                "gpunbd_listener_connections", "Current connections of a listener.",
                +[](const Self& self) { return self.connections_by_listener(); }, "listener"),
            counters("refused", &Self::refused, "reason", "gpunbd_connections_refused",
                     "Connections closed before their handshake."),
            part("devices", &Self::devices),
            part("exports", &Self::exports),
            field("contents", &Self::contents, "Contents without an export."),
            only_gauge(
                "gpunbd_contents_without_export",
                "Contents that no export has: kept ones of removed exports, and those that clients "
                "of removed exports still use.",
                +[](const Self& self) { return std::uint64_t{self.contents.size()}; }),
            only_gauge(
                "gpunbd_contents_without_export_bytes", "Memory of pages that only these have.",
                +[](const Self& self) { return self.own_of_contents(); }),
        };
    }
};

}  // namespace gpunbd::server
