// What can be told of a server at one moment, as plain values: whoever shows it, as metrics, JSON
// or a page, shows this. Counters only grow, from the start of the process. Times are in seconds
// since 1970, durations in seconds, sizes in bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "storage/histogram.hpp"

namespace gpunbd::server {

using CountsByReason = std::map<std::string, std::uint64_t>;

// Requests of one type of an export, by the names of the protocol in small letters: "read",
// "write", "trim", "write_zeroes", "flush", "cache", "block_status".
struct RequestStatus {
    std::string type = {};
    std::uint64_t requests = 0;   // that have been answered
    std::uint64_t bytes = 0;      // that those were about
    std::uint64_t in_flight = 0;  // requests
    CountsByReason errors = {};   // by "EIO", "ENOSPC", ...
    storage::Histogram latency =
        {};  // of those that are timed: off the socket -> all of the answer is ready
};

struct RateStatus {
    std::optional<std::uint64_t> bytes_per_second = {};
    std::optional<std::uint64_t> iops = {};
    double burst = 1;
};

struct ExportMemory {
    std::string device = {};
    std::uint64_t used = 0;       // of pages that are mapped
    std::uint64_t allocated = 0;  // of slabs
    std::uint64_t slabs = 0;
};

struct ExportStatus {
    std::string name = {};
    std::string description = {};
    std::uint64_t size = 0;
    std::uint64_t page_size = 0;
    std::string layout = {};     // "linear", "stripe"
    std::string provision = {};  // "thin", "full"
    bool read_only = false;
    bool keep = false;
    bool swap = false;
    std::string instance = {};              // of its contents; in hexadecimal
    std::vector<ExportMemory> memory = {};  // by its devices, in their order
    std::uint32_t connections = 0;
    RateStatus rates = {};
    std::uint64_t held_back = 0;               // requests that had to wait for the rates
    std::vector<RequestStatus> requests = {};  // of the types that it has had
};

struct CopyStatus {
    std::string path = {};       // "mapping", "copy engine", "kernel", ...
    std::string direction = {};  // "read", "write", "zero"
    std::uint64_t copies = 0;
    std::uint64_t bytes = 0;
};

struct DeviceStatus {
    std::string id = {};
    std::string name = {};
    bool failed = false;
    std::uint64_t total = 0;
    std::uint64_t available = 0;  // can still be allocated
    std::uint64_t reserve = 0;
    std::uint64_t mapped = 0;  // that the CPU addresses
    std::uint64_t allocated = 0;
    std::uint64_t used = 0;
    std::uint64_t slabs = 0;
    std::uint64_t staging = 0;        // pinned, of all workers
    std::uint64_t staging_used = 0;   // lent now
    std::uint64_t staging_waits = 0;  // transfers that found none
    std::uint64_t failures = 0;       // of copies
    std::vector<CopyStatus> copies = {};
    std::optional<bool> others_compute = {};  // unset: not known, or no GPU
    std::uint64_t competition_noticed = 0;    // how often that began
};

struct ConnectionStatus {
    std::uint64_t id = 0;
    std::string peer = {};
    std::string listener = {};
    std::string export_name = {};  // empty too while it negotiates
    bool serving = false;          // else it negotiates
    bool read_only = false;
    double since = 0;
    std::string tls = {};       // "TLS 1.3, TLS_AES_256_GCM_SHA384"; empty: none
    std::string identity = {};  // what it has proved there
    std::uint64_t requests = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t read = 0;
    std::uint64_t written = 0;
};

struct EventStatus {
    std::uint64_t id = 0;  // grows by one
    double time = 0;
    std::string level = {};   // "info", "warning", "error", ...
    std::string text = {};    // the line of the log
    std::string fields = {};  // a JSON object, of the log's fields
};

// Something that takes long.
struct ProgressStatus {
    std::string what = {};  // "provisioning", "taking over", "calibrating", "draining"
    std::string of = {};    // the export or the device
    std::uint64_t done = 0;
    std::uint64_t total = 0;  // 0: not known
    std::string unit = {};    // "bytes", "connections"
};

struct ProcessStatus {
    std::string version = {};
    std::string commit = {};
    std::string build = {};  // "Release, CUDA 12.4" and the like
    std::uint64_t pid = 0;
    double started = 0;
    double cpu_seconds = 0;
    std::uint64_t resident = 0;
    std::uint64_t open_files = 0;
    std::uint64_t max_open_files = 0;
    std::uint32_t workers = 0;
    std::string state = {};  // "starting", "serving", "draining"
};

struct Status {
    double time = 0;
    ProcessStatus process;
    std::vector<ProgressStatus> progress = {};
    std::uint64_t accepted = 0;             // connections
    CountsByReason refused = {};            // connections, before their handshake
    std::uint64_t handshakes = 0;           // that came to an export
    std::uint64_t tls_handshakes = 0;       // that succeeded
    CountsByReason failed_handshakes = {};  // by why
    std::vector<DeviceStatus> devices = {};
    std::vector<ExportStatus> exports = {};
    std::vector<ConnectionStatus> connections = {};
};

}  // namespace gpunbd::server
