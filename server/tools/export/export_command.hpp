// `gpunbd export`: lists, changes and saves exports of a running server.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/client/failure.hpp"
#include "server/tools/export/key_flags.hpp"
#include "server/tools/status/admin_server.hpp"

namespace gpunbd::status {

struct ExportRequest {
    ServerSelection server;
    std::string action;
    std::vector<std::string> names;          // the arguments after the action
    tools::KeyValues keys = {};              // of `create`
    bool zstd = false;                       // of `save`
    std::optional<std::uint64_t> threads{};  // that compress
    bool persist = false;
    bool force = false;
    bool keep_contents = false;  // of `remove`
    bool discard = false;        // of `resize`
    bool reconnect = false;      // likewise
    bool json = false;
};

// `folders`: the usual folders of server sockets. Returns the exit status. Throws what fmt::print()
// throws.
int run_export(const ExportRequest& request, const std::vector<std::string>& folders);

// How long the response to a request may take.
std::chrono::seconds time_limit(std::string_view action);

// The list of exports as a table, from the JSON of /api/v1/exports. `now`: for their ages.
Expected<std::string, Failure> export_table(std::string_view json, std::time_t now);

}  // namespace gpunbd::status
