// Keeps the exports' use of one device within a limit: it moves the pages of slabs that are used
// rarely to spill memory, so that the slabs are released to other programs, and moves pages back
// when the limit allows it. The work is done on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "storage/migration/page_mover.hpp"
#include "storage/migration/use_history.hpp"

namespace gpunbd::storage {

// The result of a change of the limit.
struct Migration {
    std::uint64_t wanted = 0;                    // bytes of slabs to release
    std::uint64_t released = 0;                  // bytes of slabs
    std::map<std::string, std::uint64_t> moved;  // bytes of pages, by the device that has them now
    std::uint64_t busy = 0;                      // pages that clients were writing all the time
    std::uint64_t failed = 0;                    // pages that could not be copied
    bool spill_full = false;                     // no spill memory was left
    std::string error;                           // why nothing could be moved; empty: none
    std::chrono::nanoseconds duration{};
};

class Migrator {
 public:
    using Volumes = std::vector<std::shared_ptr<Volume>>;
    using Done = std::function<void(const Migration&)>;
    struct Totals {
        std::uint64_t moved_out = 0;   // bytes of pages
        std::uint64_t moved_back = 0;  // bytes of pages
        std::uint64_t unmet = 0;       // bytes that should have been released and were not
        std::chrono::nanoseconds last_reclaim{};
    };

    // `volumes` returns the volumes that may have pages on the device; it is called on the
    // migrator's thread. The device outlives the migrator.
    Migrator(Device& device, std::function<Volumes()> volumes, const ChannelOptions& channels);
    // Waits for the pages on their way. Requests that have not begun are dropped with their `done`.
    ~Migrator();
    Migrator(const Migrator&) = delete;
    Migrator& operator=(const Migrator&) = delete;

    // Starts the thread. Throws std::system_error.
    void start();

    // The following may be called from any thread. `done` is called on the migrator's thread, and
    // does not throw.
    //
    // Lowers the limit so that `bytes` less than now are in use; 2^64 - 1: everything.
    void reclaim(std::uint64_t bytes, Done done);
    // Lifts the limit, and moves pages back as far as the device has memory.
    void release(Done done);

    Totals totals() const;

 private:
    struct Request {
        std::optional<std::uint64_t> bytes;  // empty: release()
        Done done;
    };
    // A slab that may be emptied.
    struct Candidate {
        std::shared_ptr<Volume> volume;
        std::uint32_t pool = 0;
        std::uint32_t slab = 0;
        std::uint64_t heat = 0;
        std::vector<std::uint64_t> numbers;  // page numbers in the volume
    };

    struct Located {
        std::uint64_t number = 0;  // page number in the volume
        PageIndex page = 0;        // in its pool
    };
    struct History {
        std::weak_ptr<Volume> volume;  // the address of a pool may be used again
        UseHistory uses;
    };

    void submit(Request request);
    void run();
    void serve(const Request& request);
    void move_out(Migration& out);
    void move_back(Migration& out);
    // False: some of its pages have not moved.
    bool empty_slab(const Candidate& candidate, Migration& out);
    void await_release(const std::vector<Candidate>& emptied);
    void move(Volume& volume, PagePool& from, std::span<PagePool* const> targets,
              std::span<const std::uint64_t> numbers, Migration& out);
    std::vector<Candidate> candidates();
    static std::vector<Located> pages_in(const Volume& volume, std::uint32_t pool);
    void tick();
    UseHistory& history(const std::shared_ptr<Volume>& volume, const PagePool& pool);
    void open_channels(const Volume& volume);
    bool stopping() const;

    Device& device_;
    const std::function<Volumes()> volumes_;
    // Used by the thread only.
    PageMover mover_;
    std::map<const PagePool*, History> histories_;
    std::thread thread_;
    mutable std::mutex mutex_;  // guards the following members
    std::condition_variable changed_;
    std::deque<Request> requests_;
    Totals totals_;
    bool stopping_ = false;
};

}  // namespace gpunbd::storage
