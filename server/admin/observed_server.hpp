// What the admin endpoint asks of the server: to be told about it, and a few things to be done. All
// of it may be called from the endpoint's thread, and keeps no worker waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/admin/status.hpp"

namespace gpunbd::server {

// A range of an export in cells of the same length, the last one shorter.
struct ExportMap {
    std::uint64_t size = 0;       // bytes, of the export
    std::uint64_t page_size = 0;  // bytes
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t cell = 0;                  // bytes; a multiple of page_size
    std::vector<std::uint8_t> used = {};     // percent of it that is mapped, rounded up
    std::vector<std::uint8_t> read = {};     // 1: in the last second
    std::vector<std::uint8_t> written = {};  // likewise
};

struct PageRun {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::string device = {};  // empty: a hole
};

struct PageRuns {
    std::uint64_t page_size = 0;  // bytes
    std::vector<PageRun> runs = {};
    std::optional<std::uint64_t> next = {};  // where to go on; unset: all has been told
};

// One sentence each.
struct Done {
    std::string text = {};
};
struct NotDone {
    std::string why = {};  // and what would be right
    bool unknown = false;  // there is no such export or connection
};
using Outcome = std::variant<Done, NotDone>;

class ObservedServer {
 public:
    virtual Status status() = 0;
    // Nothing: there is no such export. The range is cut to the export, and to whole pages.
    virtual std::optional<ExportMap> map(std::string_view name, std::uint64_t offset,
                                         std::uint64_t length, std::uint32_t max_cells) = 0;
    virtual std::optional<PageRuns> pages(std::string_view name, std::uint64_t offset,
                                          std::uint64_t length, std::size_t max_runs) = 0;

    virtual Outcome end_connection(std::uint64_t id) = 0;
    virtual Outcome set_log_level(std::string_view level) = 0;
    // Both until the configuration is read again.
    virtual Outcome set_rates(std::string_view name, const RateStatus& rates) = 0;
    virtual Outcome set_read_only(std::string_view name, bool read_only) = 0;

 protected:
    ~ObservedServer() = default;
};

}  // namespace gpunbd::server
