// The interface of the server to the admin endpoint: its state, and a few changes. All functions
// are called on the endpoint's thread, do not block it, and do not delay workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/options.hpp"
#include "server/admin/model/status.hpp"

namespace gpunbd::server {

// A range of an export in cells of the same length, the last one shorter.
struct ExportMap {
    std::uint64_t size = 0;       // bytes, of the export
    std::uint64_t page_size = 0;  // bytes
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t cell = 0;                  // bytes; a multiple of page_size
    std::vector<std::uint8_t> used = {};     // percent of each cell that is mapped, rounded up
    std::vector<std::uint8_t> read = {};     // 1: within the last second
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
    std::optional<std::uint64_t> next = {};  // where the next call continues; unset: complete
};

struct Done {
    std::string text = {};  // one sentence
};
struct NotDone {
    std::string why = {};  // one sentence, with the remedy
    bool unknown = false;  // there is no such export or connection
};
struct Kept {
    std::vector<RetainedStatus> contents = {};
};
using Outcome = std::variant<Done, NotDone, Kept>;

// Receives the outcome of an operation, once: a second call does nothing. It may be copied, and
// called on any thread. If the last copy is destroyed without a call, the outcome is that the
// server is ending, so that a client never waits for an outcome that does not come.
class Completion {
 public:
    // `sink` is called on the thread that passes the outcome.
    using Sink = std::function<void(Outcome)>;
    explicit Completion(Sink sink);

    void operator()(Outcome outcome) const;

 private:
    struct State;
    std::shared_ptr<State> state_;
};
Outcome outcome_of_ending();

class AdminBackend {
 public:
    virtual Status status() = 0;
    // Each returns nothing if there is no such export. The range is clipped to whole pages of it.
    virtual std::optional<ExportMap> map(std::string_view name, std::uint64_t offset,
                                         std::uint64_t length, std::uint32_t max_cells) = 0;
    virtual std::optional<PageRuns> pages(std::string_view name, std::uint64_t offset,
                                          std::uint64_t length, std::size_t max_runs) = 0;

    // All values have passed the checks of the configuration.
    virtual Outcome set_log_level(std::string_view level) = 0;
    // Completes when the change is in effect for all clients.
    virtual void end_connection(std::uint64_t id, Completion completion) = 0;
    // Both changes last until the next reload.
    virtual void set_rates(std::string_view name, const config::Rates& rates,
                           Completion completion) = 0;
    virtual void set_read_only(std::string_view name, bool read_only, Completion completion) = 0;
    // The outcome is Kept. It is delayed while exports are created, because they take contents.
    virtual void list_kept(Completion completion) = 0;
    // Frees the contents of that name, which no export uses.
    virtual void drop_kept(std::string_view name, Completion completion) = 0;

 protected:
    ~AdminBackend() = default;
};

}  // namespace gpunbd::server
