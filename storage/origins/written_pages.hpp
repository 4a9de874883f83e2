// The pages of a cache that its origin does not have, or that clients are writing to.
#pragma once

#include <array>
#include <atomic>
#include <boost/dynamic_bitset.hpp>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/chained_queue.hpp"
#include "storage/base/mutex.hpp"
#include "storage/base/status.hpp"
#include "storage/pages/kept_cache.hpp"
#include "storage/pages/page_source.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

// A page has a record from the begin of the first write to it until no write is in progress and all
// of it is in the origin:
//
//             begin()           end()              begin_round()
//    no record -----> in progress -----> unwritten -----> being written to the origin
//        ^                |                  ^                       |
//        |                v                  |       failed, or      |
//        +---- forget() - idle <-------------|------ changed again --+
//                           end_round()
//
// What clients need when they write. Any thread calls these functions. They lock the group that the
// page belongs to, so writers of different pages do not wait for each other.
//
// In a kept cache, parts with unwritten blocks are also marked in the page table: see KeptCache. A
// page without a record, or that is a hole, has no mark. So each change of a mark, and each end of
// a mapping that may have one, is made with the group locked.
//
// A part of a page without contents is filled by one write or one fetch at a time, and has contents
// once that has succeeded. If the page becomes a hole meanwhile, the write fills nothing.
class WriteRecords {
 public:
    using Clock = std::chrono::steady_clock;
    using Requests = ChainedQueue<SourceRequest>;
    // One bit for each block of a page. Whole blocks are written to the origin.
    using Blocks = boost::dynamic_bitset<>;
    static constexpr std::uint64_t block_size = 4096;  // bytes

    // `marks`: those of the volume, which outlives this object; or nothing is marked.
    WriteRecords(const Volume& volume, KeptCache marks);
    ~WriteRecords();
    WriteRecords(const WriteRecords&) = delete;
    WriteRecords& operator=(const WriteRecords&) = delete;

    // The blocks of these parts of a page. Throws std::bad_alloc.
    Blocks blocks_of(Parts parts) const;
    bool contains(std::uint64_t page) const;
    std::uint64_t size() const { return size_.load(); }                     // pages
    std::uint64_t bytes() const { return unwritten_.load() * block_size; }  // unwritten
    // Whether the next process finds what is unwritten.
    bool marks_pages() const { return marks_.is_kept() && is_marking_.load(); }
    // When the oldest change was made that no round has begun with; empty: there is none.
    std::optional<Clock::time_point> oldest() const;

    // A write to the page begins. False: the page has no record, and `may_add` is false. Throws
    // std::bad_alloc, and nothing has changed then.
    bool begin(std::uint64_t page, bool may_add);
    // See PageCache::begin_fill(). Throws std::bad_alloc, and nothing has changed then.
    bool begin_fill(std::uint64_t page, const PageRef& target, Parts parts,
                    const SourceRequest& write, PageRequest& request);
    // See PageCache::fill_rest(). False: the rest of the part has to be fetched.
    bool cut_fill(std::uint64_t offset, const SourceRequest& write);
    // Of a write that has ended. It may have changed `length` bytes from `offset` in the volume on.
    struct End {
        std::uint64_t offset = 0;  // in one page
        std::uint64_t length = 0;
        std::uint64_t filled = 0;  // see PageCache::end_write()
        SourceRequest& write;
        bool waits = false;  // `write` is complete once they are in the origin
        Clock::time_point now;
    };
    // It has ended. Nothing waits for its changes. False: the predicate is not true, and nothing
    // has changed. It is called while no other thread changes the record.
    template <typename Predicate>
    bool end_if(const End& end, Predicate is_valid) {
        PageRequests waiters;
        {
            Group& group = group_of(volume_.page_of(end.offset));
            const Lock lock(group.mutex);
            if (!is_valid()) return false;
            waiters = end_in(group, end);
        }
        complete(waiters, Status::ok);
        return true;
    }
    // Writes are filling some of `request.parts`: the request is completed once that has changed.
    bool wait_for_fills(PageRequest& request);
    // Parts of a page that are fetched, while this object exists: those of `parts` that the page
    // lacks and no write fills.
    class Fetching {
     public:
        // `target`: the page, pinned for writing. Throws std::bad_alloc.
        Fetching(WriteRecords& records, std::uint64_t page, const PageRef& target, Parts parts);
        ~Fetching();
        Fetching(const Fetching&) = delete;
        Fetching& operator=(const Fetching&) = delete;

        Parts parts() const { return parts_; }
        // Where payload was cut in others of `parts`, of which the rest is fetched: offsets in the
        // volume.
        const std::vector<std::uint64_t>& cuts() const { return cuts_; }
        void cuts_are_filled();

     private:
        WriteRecords& records_;
        const std::uint64_t page_;
        Parts parts_ = 0;
        std::vector<std::uint64_t> cuts_;
    };
    // Calls `action` if the page has no record, and gets none meanwhile. False: it has one.
    template <typename Action>
    bool unless_written(std::uint64_t page, Action action) {
        Group& group = group_of(page);
        const Lock lock(group.mutex);
        if (group.records.contains(page)) return false;
        action();
        return true;
    }

 protected:
    using Hook = boost::intrusive::list_member_hook<
        boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
    // The parts without contents that a write fills.
    struct Fill {
        const SourceRequest* write = nullptr;
        Parts parts = 0;
        std::optional<std::uint64_t> cut = {};  // where the payload ends, in the volume
        bool has_rest = false;                  // of the part that has this byte
    };
    struct Record {
        explicit Record(std::uint64_t blocks) : unwritten(blocks), in_round(blocks) {}

        std::uint64_t page = 0;
        std::uint32_t writers = 0;
        bool is_in_round = false;
        bool is_spoiled = false;
        bool is_urgent = false;
        Blocks unwritten;
        Blocks in_round;
        // Each has room for the requests of all writers.
        std::vector<SourceRequest*> waiting;           // for `unwritten`
        std::vector<SourceRequest*> waiting_in_round;  // for `in_round`
        Clock::time_point since;                       // of the oldest in `unwritten`
        Clock::time_point round_since;                 // the same for `in_round`
        std::vector<Fill> fills;
        PageRequests fill_waiters;  // until a fill or a fetch has ended
        Hook hook;
        void* list = nullptr;  // where the hook is linked
    };
    using Records =
        boost::intrusive::list<Record, boost::intrusive::member_hook<Record, Hook, &Record::hook>,
                               boost::intrusive::constant_time_size<false>>;

    struct alignas(64) Group {
        mutable Mutex mutex;
        std::unordered_map<std::uint64_t, Record> records GUARDED_BY(mutex);  // by page
        // Those with unwritten blocks that are not in a round.
        Records urgent GUARDED_BY(mutex);
        // Nearly by age: those that changed during a round come after it.
        Records aged GUARDED_BY(mutex);
        struct Fetch {
            std::uint64_t page = 0;
            Parts parts = 0;
        };
        std::vector<Fetch> fetches GUARDED_BY(mutex);
    };

    Group& group_of(std::uint64_t page) { return groups_[page % groups_.size()]; }
    const Group& group_of(std::uint64_t page) const { return groups_[page % groups_.size()]; }
    // These return the requests that have waited.
    PageRequests end_in(Group& group, const End& end) REQUIRES(group.mutex);
    PageRequests end_fill(Record& record, const End& end);
    static PageRequests void_fills(Group& group, std::uint64_t page) REQUIRES(group.mutex);
    // Puts the record into the list where it belongs now.
    static void enqueue(Group& group, Record& record) REQUIRES(group.mutex);
    Parts parts_of(const Blocks& blocks) const;

    const Volume& volume_;
    const KeptCache marks_;
    std::atomic<bool> is_marking_{true};
    const std::uint64_t blocks_;               // of a page
    std::atomic<std::uint64_t> unwritten_{0};  // blocks, also those that are being written
    std::atomic<std::uint64_t> size_{0};       // records
    std::array<Group, 32> groups_;
};

// The same with what the workers of the cache need: the requests of clients, which wait for
// changes, and rounds. The mutex of the cache guards both.
class WrittenPages final : public WriteRecords {
 public:
    using WriteRecords::WriteRecords;

    void end(const End& end) {
        end_if(end, [] { return true; });
    }
    // It has ended, and has changed nothing that is needed.
    void cancel(const End& end);
    // Whether the page has changes that no round has begun with.
    bool is_unwritten(std::uint64_t page) const;
    bool is_in_round(std::uint64_t page) const;
    // `flush` is complete once all that is unwritten now is in the origin. Throws std::bad_alloc;
    // it waits for a part of this then.
    void wait_for_all(SourceRequest& flush);
    // The page is written as if a request waited for it.
    void urge(std::uint64_t page);
    // An earlier process has left these parts unwritten, and has marked them. Throws
    // std::bad_alloc.
    void adopt(std::uint64_t page, Parts unwritten, Clock::time_point since);
    // Calls `unmap`, which makes the page a hole.
    template <typename Unmap>
    void unmap(std::uint64_t page, Unmap unmap) {
        PageRequests waiters;
        {
            Group& group = group_of(page);
            const Lock lock(group.mutex);
            marks_.remove_unwritten(page, ~Parts{0});
            waiters = void_fills(group, page);
            unmap();
        }
        complete(waiters, Status::ok);
    }
    // Nothing is marked from now on: the next process cannot read the pages.
    void stop_marking();

    // Whether requests wait for a page that no round has begun with.
    bool has_urgent() const {
        return first(&Group::urgent, [](std::uint64_t) { return true; }).has_value();
    }
    // A page that requests wait for, or else the oldest one, for which this is true.
    template <typename Predicate>
    std::optional<std::uint64_t> next_urgent(Predicate is_free) const {
        return first(&Group::urgent, is_free);
    }
    template <typename Predicate>
    std::optional<std::uint64_t> next_by_age(Predicate is_free) const {
        return first(&Group::aged, is_free);
    }
    // The changes of the page until now are about to be written to the origin: these blocks.
    const Blocks& begin_round(std::uint64_t page);
    // They have been, or have not. After a failure, the changes stay unwritten, or else are given
    // up: then the page has other contents than the origin. Returns the requests that are complete.
    enum class AfterFailure : std::uint8_t { keep, give_up };
    Requests end_round(std::uint64_t page, Status status, AfterFailure after);
    // The changes of the page are not wanted any more, or lost. No round is in progress.
    Requests discard(std::uint64_t page, Status status);

    // Ends the record of the page, if it is idle. If changes were given up, calls `drop` before
    // another write can begin: the page must not be used.
    template <typename Drop>
    void forget(std::uint64_t page, Drop drop) {
        Group& group = group_of(page);
        const Lock lock(group.mutex);
        const auto found = group.records.find(page);
        if (found == group.records.end()) return;
        const Record& record = found->second;
        if (record.writers != 0 || record.is_in_round || record.unwritten.any()) return;
        GPUNBD_ASSERT(marks_.unwritten(page) == 0, "a page without a record has no mark");
        GPUNBD_ASSERT(record.fills.empty() && record.fill_waiters.empty(),
                      "a write fills parts of a page until it ends");
        if (record.is_spoiled) drop();
        group.records.erase(found);
        size_.fetch_sub(1);
    }

 private:
    // The oldest of those that are the first of their group. The predicate may require the mutex
    // that the caller holds.
    template <typename Predicate>
    std::optional<std::uint64_t> first(Records Group::*list,
                                       Predicate is_free) const NO_THREAD_SAFETY_ANALYSIS {
        std::optional<std::uint64_t> out;
        Clock::time_point since;
        for (const Group& group : groups_) {
            const Lock lock(group.mutex);
            for (const Record& each : group.*list) {
                if (out && each.since >= since) break;
                if (!is_free(each.page)) continue;
                out = each.page;
                since = each.since;
                break;
            }
        }
        return out;
    }
    static void complete_one(SourceRequest& request, Status status, Requests& done);
};

}  // namespace gpunbd::storage
