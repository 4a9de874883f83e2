// The state of a server at one moment, as plain values. structure() describes the members of each
// type once for all readers and writers: metrics, JSON, and the tools that read the JSON. To add a
// value or a metric, add a member, and its field in status_structures.cpp or export_structures.cpp;
// what workers count is in server/counters/counts.hpp. Counters only grow, from the start of the
// process. Times are in seconds since 1970, durations in seconds, sizes in bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/counters/counts.hpp"
#include "server/counters/longest_requests.hpp"

namespace gpunbd::server {

struct Structure;  // server/admin/model/structure.hpp

// Requests of one type of an export.
struct RequestStatus : RequestCounts<std::uint64_t> {
    using Counts = RequestCounts<std::uint64_t>;

    std::string type = {};  // one of `types`
    std::uint64_t in_flight = 0;

    static constexpr std::array<std::string_view, 8> types{
        "read", "write", "trim", "write_zeroes", "flush", "cache", "block_status", "unknown"};
    static const Structure& structure();
};

struct RateStatus {
    std::optional<std::uint64_t> bytes_per_second = {};
    std::optional<std::uint64_t> iops = {};
    double burst = 1;

    bool limited() const { return bytes_per_second || iops; }
    static const Structure& structure();
};

// The part of a request's duration that it spent waiting for one thing.
struct WaitStatus {
    std::string stage = {};  // one of wait_stages
    double seconds = 0;

    static const Structure& structure();
};

// The request that took longest, from its receipt until its reply was ready.
struct LongestRequest {
    std::string type = {};  // one of RequestStatus::types; empty: there was no request
    double seconds = 0;
    std::uint64_t age = 0;               // whole seconds since it ended
    std::vector<WaitStatus> waits = {};  // by stage; all of them

    static const Structure& structure();
};

// Latencies of the requests that were timed in the last second, in seconds; 0: none. The longest
// request is that of the last whole second.
struct LastSecond {
    double read_p50 = 0;
    double read_p99 = 0;
    double write_p50 = 0;
    double write_p99 = 0;
    LongestRequest longest = {};  // of all requests

    static const Structure& structure();
};

struct ExportMemory {
    std::string device = {};
    std::uint64_t used = 0;
    std::uint64_t allocated = 0;
    std::uint64_t slabs = 0;
    std::string home = {};  // of spill memory

    static const Structure& structure();
};

struct TemplateStatus {
    std::string name = {};
    std::uint64_t clones = 0;
    std::uint64_t max = 0;

    static const Structure& structure();
};

// The requests to an origin of one operation, from the start of the process.
struct OriginRequests {
    std::string operation = {};  // one of storage::OriginTimes::names
    storage::Histogram latency = {};
    // Of `latency`, in seconds, for readers of JSON.
    std::uint64_t count = 0;
    double p50 = 0;
    double p99 = 0;
    double longest = 0;

    static const Structure& structure();
};

// What provides the contents of an export.
struct OriginStatus {
    std::string path = {};
    std::uint64_t misses = 0;
    std::uint64_t fetched = 0;
    std::uint64_t prefetched = 0;
    std::uint64_t wasted = 0;
    std::uint64_t evicted = 0;
    std::uint64_t errors = 0;
    std::uint64_t written = 0;    // bytes
    std::uint64_t unwritten = 0;  // bytes
    double unwritten_age = 0;     // seconds
    std::uint64_t read_bytes = 0;
    std::vector<OriginRequests> requests = {};  // of the operations that it has received

    static const Structure& structure();
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
    std::vector<OriginStatus> origins = {};  // one at most
    std::string instance = {};               // identifies its contents; hexadecimal
    std::vector<ExportMemory> memory = {};   // of its devices, in their order
    std::uint64_t own = 0;
    std::uint64_t shared = 0;
    std::uint32_t connections = 0;
    std::uint32_t stalled = 0;
    RateStatus rates = {};                     // of all clients together
    RateStatus rates_per_peer = {};            // of each client
    std::vector<RequestStatus> requests = {};  // of the types that it has received
    LastSecond last_second = {};
    LongestRequest longest = {};  // of the last minute

    std::uint64_t sum(std::uint64_t ExportMemory::*value) const {
        std::uint64_t all = 0;
        for (const ExportMemory& each : memory) all += each.*value;
        return all;
    }
    static constexpr std::array<std::string_view, 2> layouts{"linear", "stripe"};
    static constexpr std::array<std::string_view, 2> provisions{"thin", "full"};
    static const Structure& structure();
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
    static const Structure& structure();
};

struct CopyStatus {
    std::string path = {};       // "mapping", "copy engine", "kernel", ...
    std::string direction = {};  // one of `directions`
    std::uint64_t copies = 0;
    std::uint64_t bytes = 0;

    static constexpr std::array<std::string_view, 3> directions{"read", "write", "zero"};
    static const Structure& structure();
};

// Memory of a device that an administrator has taken from the exports.
struct ClaimStatus {
    std::uint64_t id = 0;
    std::string owner = {};
    std::optional<std::uint64_t> asked = {};  // unset: all
    std::uint64_t bytes = 0;
    double age = 0;                      // in seconds
    std::optional<double> ends_in = {};  // in seconds; unset: when it is ended

    static const Structure& structure();
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

    static const Structure& structure();
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

    static const Structure& structure();
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

    static const Structure& structure();
};

struct MovedStatus {
    std::string device = {};
    std::uint64_t bytes = 0;

    static const Structure& structure();
};

// The result of giving memory of one device back to other programs, or of ending that.
struct ReclaimStatus {
    std::string device = {};
    std::uint64_t wanted = 0;
    std::uint64_t released = 0;
    std::uint64_t freed = 0;
    std::uint64_t dropped = 0;
    std::vector<MovedStatus> moved = {};
    double seconds = 0;
    std::string why_not = {};                 // empty: complete
    std::optional<std::uint64_t> claim = {};  // unset: none is in effect
    std::optional<std::uint64_t> limit = {};  // unset: there is none

    bool complete() const { return why_not.empty(); }
    static const Structure& structure();
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

    static const Structure& structure();
};

// An operation that takes long.
struct ProgressStatus {
    std::string what = {};  // "provisioning", "taking over", "calibrating", "draining"
    std::string of = {};    // the export or the device
    std::uint64_t done = 0;
    std::uint64_t total = 0;  // 0: not known
    std::string unit = {};    // one of `units`

    static constexpr std::array<std::string_view, 2> units{"bytes", "connections"};
    static const Structure& structure();
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
    static const Structure& structure();
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
    static const Structure& structure();
};

}  // namespace gpunbd::server
