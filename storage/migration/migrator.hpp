// Keeps the exports' use of one device within a limit: it moves the pages of slabs that are used
// rarely to spill memory, so that the slabs are released to other programs, and moves pages back
// when the limit allows it. The work is done on threads of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/long_work.hpp"
#include "storage/base/mutex.hpp"
#include "storage/migration/page_mover.hpp"
#include "storage/migration/use_history.hpp"

namespace gpunbd::storage {

// The result of a change of the limit.
struct Migration {
    std::uint64_t wanted = 0;    // bytes of slabs to release
    std::uint64_t released = 0;  // bytes of slabs
    std::uint64_t freed = 0;     // of these, by MigratorOptions::drop_unused
    // Bytes by which the limit is below what was in use and allowed, and below the earlier limit,
    // which is more if less than that was in use.
    std::uint64_t lowered = 0;
    std::uint64_t limit_fell = 0;
    std::map<std::string, std::uint64_t> moved;  // bytes of pages, by the device that has them now
    std::uint64_t dropped = 0;                   // bytes of pages, which their origin has
    std::uint64_t busy = 0;                      // pages that clients were writing all the time
    std::uint64_t failed = 0;                    // pages that could not be copied
    // Some pages stay because their targets have no memory: spill memory on the way out, memory of
    // the device or room below its limit on the way back.
    bool no_room = false;
    bool cut_short = false;  // a later request ended the way back
    std::string error;       // why nothing could be moved; empty: none
    std::chrono::nanoseconds duration{};

    // Bytes that should have been released and were not.
    std::uint64_t missing() const { return wanted - std::min(wanted, released); }
};

struct MigratorOptions {
    ChannelOptions channels;  // of all threads together
    unsigned threads = MoverPool::default_threads();
    // Frees memory on the device, or in its spill memory, that nothing uses any longer, and waits
    // until it is free. Returns false if there was none. Called before pages move away.
    std::function<bool(const Device&)> drop_unused = {};
};

class Migrator {
 public:
    using Volumes = std::vector<std::shared_ptr<Volume>>;
    using Done = std::function<void(Migration&&)>;
    struct Totals {
        std::uint64_t reclaims = 0;
        std::uint64_t releases = 0;
        std::uint64_t moved_out = 0;   // bytes of pages
        std::uint64_t moved_back = 0;  // bytes of pages
        std::uint64_t failed = 0;      // pages that could not be copied
        std::uint64_t unmet = 0;       // bytes that should have been released and were not
        // Of the last reclaim().
        std::chrono::nanoseconds last_reclaim{};
        std::chrono::system_clock::time_point last_reclaim_end{};
    };

    // `volumes` returns the volumes that may have pages on the device; it is called on the
    // migrator's thread. The device outlives the migrator.
    Migrator(Device& device, std::function<Volumes()> volumes, const MigratorOptions& options);
    // Waits for the pages on their way. Requests that have not begun are dropped with their `done`.
    ~Migrator();
    Migrator(const Migrator&) = delete;
    Migrator& operator=(const Migrator&) = delete;

    // Starts the thread. Throws std::system_error.
    void start();

    // The following may be called from any thread. `done` is called on the migrator's thread, and
    // does not throw.
    //
    // Lowers the limit so that `bytes` less than now are in use; 2^64 - 1: everything. Where pages
    // stay, the limit stays too: otherwise each request would lower it further, and new pages would
    // find no memory in the place of trimmed ones.
    void reclaim(std::uint64_t bytes, Done done);
    // Raises the limit by `bytes`, and moves pages back as far as the limit and the memory of the
    // device allow it: the pages that were used last come first. Ends early when another request
    // waits.
    void release(std::uint64_t bytes, Done done);
    // The same for amounts that are calculated on the migrator's thread when the earlier requests
    // are done. A claim() that releases nothing leaves the limit as it was.
    using Amount = std::function<std::uint64_t()>;
    void claim(Amount bytes, Done done);
    void end_claim(Amount bytes, Done done);
    // Empties revocable slabs of so many bytes, those first whose pages are used most: the pages
    // move to slabs of the device that are not revocable, or to spill memory that is not memory of
    // the host. The limit stays.
    void give_up_revocable(std::uint64_t bytes, Done done);
    // Opens the channels to all devices of the present volumes, which otherwise happens soon after
    // they are made. The result only has an error.
    void prepare(Done done);
    // Lifts the limit.
    void release(Done done) { release(SlabBudget::unlimited, std::move(done)); }
    // The way back takes so many bytes per second at most; 0: as many as possible.
    void set_return_rate(std::uint64_t bytes) { return_rate_ = bytes; }

    Totals totals() const;

 private:
    enum class Direction : std::uint8_t { none, out, back, fixed };
    struct Request {
        Direction direction = Direction::out;
        std::uint64_t bytes = 0;
        Done done;
        Amount amount = {};  // instead of `bytes`
    };
    // A slab that may be emptied.
    struct Candidate {
        PagePool* owner = nullptr;
        std::uint32_t pool = 0;  // the index of the owner in its volumes
        std::uint32_t slab = 0;
        std::uint32_t generation = 0;  // a later slab of this number has another one
        std::uint64_t bytes = 0;
        std::uint64_t heat = 0;
        // Its pages. One that several volumes share is there once.
        struct Page {
            Volume* volume = nullptr;
            std::uint64_t number = 0;  // in the volume
        };
        std::vector<Page> pages;

        // The origin of the volume has or gets its pages, so they are dropped instead of moved.
        bool is_droppable() const {
            return !pages.empty() && pages.front().volume->cache() != nullptr;
        }
        bool has_page(const Page& page) const;
        bool is_emptied() const { return pages.empty(); }
        bool is_allocated() const {
            return owner->memory().kind_of(slab) &&
                   owner->memory().slabs().directory().entry(slab).generation == generation;
        }
    };
    // The pages in spill memory.
    struct Spilled {
        struct Page {
            std::uint32_t volume = 0;  // an index
            std::uint32_t pool = 0;
            std::uint32_t heat = 0;
            std::uint64_t number = 0;  // in the volume
        };
        std::vector<std::weak_ptr<Volume>> volumes;
        std::vector<Page> pages;
    };
    struct Located {
        std::uint32_t volume = 0;  // an index
        std::uint64_t number = 0;  // page number in the volume
        PageIndex page = 0;        // in its pool
    };
    struct History {
        std::weak_ptr<PagePool> pool;  // its address may be used again
        UseHistory uses;
    };
    // The volumes that share the pool `index` of one of them.
    struct Sharing {
        PagePool* pool = nullptr;
        std::uint32_t index = 0;
        std::vector<std::uint32_t> volumes;  // indices
    };
    // Shows the progress of a request while it exists.
    struct Shown {
        Shown(Migrator& its_migrator, LongWork& work) : migrator(its_migrator) {
            GPUNBD_ASSERT(migrator.work_ == nullptr, "one request is in progress at a time");
            migrator.work_ = &work;
            migrator.work_moved_ = 0;
        }
        ~Shown() { migrator.work_ = nullptr; }
        Shown(const Shown&) = delete;
        Shown& operator=(const Shown&) = delete;
        Migrator& migrator;
    };
    // Pools with pages that find no memory elsewhere.
    using Pools = std::vector<const PagePool*>;

    void submit(Request request);
    void run();
    void serve(const Request& request);
    void count(Direction direction, const Migration& out);

    void lower_limit(std::uint64_t bytes, bool is_claim, Migration& out);
    void move_out(Migration& out);
    std::vector<Candidate> find_slabs(const Volumes& volumes);
    std::vector<Candidate> candidates(const Volumes& volumes);
    void empty_slabs(std::uint64_t limit, Migration& out);
    std::uint64_t excess_above(std::uint64_t limit, std::span<Candidate* const> emptied) const;
    // `target`: the pool to which pages of a pool move; null: any of its spill pools.
    using Target = std::function<PagePool*(PagePool&)>;
    void move_out(std::span<Candidate* const> slabs, const Target& target, Pools& full,
                  Migration& out);
    static void drop_pages(Candidate& slab, Migration& out);
    static void await_release(std::span<Candidate* const> emptied);
    static void stop_draining(std::span<const Candidate> slabs);

    void give_up_revocable(std::uint64_t bytes, Migration& out);

    void move_back(Migration& out);
    Spilled find_spilled(const Pools& full);
    bool move_back(const Spilled& spilled, Pools& full, Migration& out);
    bool wait_for_return();
    void refill(Migration& out);

    // Moves the pages. Returns how many bytes have moved.
    std::uint64_t move(std::span<PageToMove> pages, Pools& full, Migration& out);
    static std::vector<Located> pages_in(const Volumes& volumes, const Sharing& sharing);
    std::vector<Sharing> pools_of(const Volumes& volumes, bool spills) const;
    bool is_ours(const Volume& volume, std::uint32_t pool) const;
    void open_channels(const Volume& volume);
    void prepare_copies(const Volume& volume);
    bool is_prepared(const std::shared_ptr<PagePool>& pool) const;
    void close_idle_copies(const Volume& volume) const;
    void tick();
    void visit_pools();
    // In migrator_exchange.cpp.
    void exchange_pages();
    void exchange_pages(const Volumes& volumes, const Sharing& sharing);
    std::size_t move_to(SlabKind kind, std::span<const Located> pages, const Volumes& volumes,
                        PagePool& pool, UseHistory& uses);
    UseHistory& history(const std::shared_ptr<PagePool>& pool);
    bool stopping() const;

    Device& device_;
    const std::function<Volumes()> volumes_;
    const MigratorOptions options_;
    std::atomic<std::uint64_t> return_rate_{0};  // bytes per second
    // Used by the thread only, which opens and closes the channels.
    std::optional<MoverPool> movers_;
    std::map<const PagePool*, History> histories_;
    std::vector<std::weak_ptr<PagePool>> prepared_pools_;  // see prepare_copies()
    LongWork* work_ = nullptr;      // the request in progress; null: none that is shown
    std::uint64_t work_moved_ = 0;  // bytes
    std::chrono::steady_clock::time_point return_time_;  // of the next pages
    std::thread thread_;
    mutable Mutex mutex_;
    Condition changed_;
    std::deque<Request> requests_ GUARDED_BY(mutex_);
    Totals totals_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace gpunbd::storage
