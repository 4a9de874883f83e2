// The interface of the server to the admin endpoint: its state, and a few changes. All functions
// are called on the endpoint's thread, do not block it, and do not delay workers.
#pragma once

#include <chrono>
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

    // Whether it is outcome_of_replacement(). The text says so, because a change of exports passes
    // on only that.
    bool of_replacement() const;
};
struct Kept {
    std::vector<KeptStatus> contents = {};
};
struct Reclaimed {
    std::vector<ReclaimStatus> devices = {};
};
using Outcome = std::variant<Done, NotDone, Kept, Reclaimed>;

// Gives memory of devices back to other programs.
struct ReclaimRequest {
    std::string device = {};                            // empty: all that have spill memory
    std::optional<std::uint64_t> bytes = {};            // unset: all that exports use
    std::optional<std::chrono::seconds> duration = {};  // unset: until it is ended
    std::string owner = {};                             // the client that asks
};
struct EndOfReclaim {
    std::string device = {};                  // empty: all
    std::optional<std::uint64_t> claim = {};  // unset: all of the device
};

// Requests to change exports.
struct CreateExport {
    config::ExportOptions options = {};
    bool persist = false;  // also in the state folder
};
struct RemoveExport {
    std::string name = {};
    bool force = false;          // disconnects its clients
    bool keep_contents = false;  // its kept contents remain for keeping.grace
};
// Paths are those of the server's machine, absolute.
struct SaveExport {
    std::string name = {};
    std::string file = {};
    bool zstd = false;
    std::uint32_t threads = 1;  // that compress
};
// Into an existing export without contents, or into a new one with these options.
struct RestoreExport {
    std::string file = {};
    CreateExport create = {};
    bool only_name = true;  // no other option is given
};
struct ResizeExport {
    std::string name = {};
    std::uint64_t size = 0;  // bytes
    bool discard = false;    // data beyond the new end
    bool reconnect = false;  // disconnects clients, so that they see the new size
};
// Of an export with an origin.
struct FlushExport {
    std::string name = {};
};
struct EvictExport {
    std::string name = {};
    std::uint64_t size = 0;  // bytes
};
struct RenameExport {
    std::string name = {};
    std::string new_name = {};
};
// Both last until the next reload.
struct SetRates {
    std::string name = {};
    config::Rates rates = {};
};
struct SetReadOnly {
    std::string name = {};
    bool read_only = false;
};
using ExportRequest =
    std::variant<CreateExport, RemoveExport, ResizeExport, RenameExport, SaveExport, RestoreExport,
                 FlushExport, EvictExport, SetRates, SetReadOnly>;

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
// A successor takes over, and can make the change.
Outcome outcome_of_replacement();

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
    virtual void perform(const ExportRequest& request, Completion completion) = 0;
    // The outcome is Kept. It is delayed while exports are created, because they take contents.
    virtual void list_kept(Completion completion) = 0;
    // Frees the contents of that name, which no export uses.
    virtual void drop_kept(std::string_view name, Completion completion) = 0;
    // The outcome of both is Reclaimed, once pages have been moved.
    virtual void reclaim(const ReclaimRequest& request, Completion completion) = 0;
    virtual void end_reclaim(const EndOfReclaim& request, Completion completion) = 0;

 protected:
    ~AdminBackend() = default;
};

}  // namespace gpunbd::server
