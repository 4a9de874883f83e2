// What a server has told of itself, as `status` and `top` show it. Its answers are not trusted:
// what is missing or of another type counts as 0 or empty, and all texts are harmless.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/client/failure.hpp"

namespace gpunbd::status {

struct RequestFigures {
    std::string type;
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t errors = 0;
    double p50 = 0;  // seconds
    double p99 = 0;
};

struct MemoryFigures {
    std::string device;
    std::uint64_t allocated = 0;
};

struct ExportFigures {
    std::string name;
    std::uint64_t size = 0;
    std::uint64_t used = 0;
    std::uint64_t connections = 0;
    std::vector<MemoryFigures> memory;
    std::vector<RequestFigures> requests;

    // Of all types of requests together.
    std::uint64_t total(std::uint64_t RequestFigures::*figure) const;
    std::uint64_t bytes_of(std::string_view type) const;
    double slowest(double RequestFigures::*figure) const;
};

struct DeviceFigures {
    std::string id;
    std::string name;
    bool failed = false;
    std::uint64_t total = 0;
    std::uint64_t available = 0;
    std::uint64_t allocated = 0;
    std::uint64_t used = 0;
};

struct ConnectionFigures {
    std::uint64_t id = 0;
    std::string peer;
    std::string export_name;
    std::string identity;
    double since = 0;
    std::uint64_t requests = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t read = 0;
    std::uint64_t written = 0;
};

struct ProgressFigures {
    std::string what;
    std::string of;
    std::uint64_t done = 0;
    std::uint64_t total = 0;  // 0: not known
    std::string unit;
};

struct ProcessFigures {
    std::string version;
    std::string commit;
    std::string state;
    std::uint64_t pid = 0;
    double started = 0;
    double cpu_seconds = 0;
    std::uint64_t resident = 0;
    std::uint64_t open_files = 0;
    std::uint64_t max_open_files = 0;
    std::uint64_t workers = 0;
};

struct Snapshot {
    double time = 0;
    ProcessFigures process;
    std::uint64_t accepted = 0;
    std::uint64_t connections = 0;
    std::uint64_t refused = 0;
    std::uint64_t failed_handshakes = 0;
    std::vector<ProgressFigures> progress;
    std::vector<DeviceFigures> devices;
    std::vector<ExportFigures> exports;
};

struct Tick {
    Snapshot status;
    std::vector<ConnectionFigures> connections;
    std::uint64_t connections_left_out = 0;
};

// From the JSON of /api/v1/status, /connections, and an event of /stream.
Or<Snapshot> read_status(std::string_view json);
Or<std::vector<ConnectionFigures>> read_connections(std::string_view json);
Or<Tick> read_tick(std::string_view json);
// What an answer that is none says instead; empty: nothing.
std::string read_error(std::string_view json);

}  // namespace gpunbd::status
