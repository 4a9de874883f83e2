// The state of a server as `status` and `top` show it. The server's responses are not trusted: a
// value that is missing or of another type becomes 0 or empty, and control characters in texts are
// replaced.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/admin/model/status.hpp"
#include "server/tools/client/failure.hpp"

namespace gpunbd::status {

struct RequestFigures {
    std::string type;
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t errors = 0;  // of all kinds
};

using MemoryFigures = server::ExportMemory;
using DeviceFigures = server::DeviceStatus;
using ProgressFigures = server::ProgressStatus;
using ProcessFigures = server::ProcessStatus;
// `export_name` is "(handshake)" until the connection serves an export.
using ConnectionFigures = server::ConnectionStatus;

struct ExportFigures {
    std::string name;
    std::uint64_t size = 0;
    std::uint64_t used = 0;
    std::uint64_t connections = 0;
    std::uint64_t stalled = 0;
    double last_p50 = 0;  // in seconds, over the last second; the slower of reads and writes
    double last_p99 = 0;
    std::vector<MemoryFigures> memory;
    std::vector<server::TemplateStatus> templates = {};
    std::vector<server::OriginStatus> origins = {};
    std::vector<RequestFigures> requests = {};

    // The sum over all types of requests.
    std::uint64_t total(std::uint64_t RequestFigures::*figure) const;
    std::uint64_t bytes_of(std::string_view type) const;
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
    std::vector<ExportFigures> exports = {};
    std::vector<server::ContentsStatus> contents = {};  // without an export
};

struct Tick {
    Snapshot status;
    std::vector<ConnectionFigures> connections = {};
    std::uint64_t connections_left_out = 0;
};

// Parse the JSON of /api/v1/status, of /connections, and of an event of /stream.
Expected<Snapshot, Failure> read_status(std::string_view json);
Expected<std::vector<ConnectionFigures>, Failure> read_connections(std::string_view json);
Expected<Tick, Failure> read_tick(std::string_view json);
// Parses that of /exports.
Expected<std::vector<server::ExportStatus>, Failure> read_exports(std::string_view json);
// Parses that of /reclaim and /reclaim/end.
Expected<std::vector<server::ReclaimStatus>, Failure> read_reclaimed(std::string_view json);
// The message of an error response; empty if there is none.
std::string read_error(std::string_view json);

}  // namespace gpunbd::status
