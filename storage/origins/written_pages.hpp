// The pages of a cache that its origin does not have, or that clients are writing to.
#pragma once

#include <boost/dynamic_bitset.hpp>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "storage/base/chained_queue.hpp"
#include "storage/base/status.hpp"
#include "storage/base/thread_annotations.hpp"
#include "storage/pages/page_source.hpp"

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
// It is used with the mutex of the cache held.
class WrittenPages {
 public:
    using Clock = std::chrono::steady_clock;
    using Requests = ChainedQueue<SourceRequest>;
    // One bit for each block of a page. Whole blocks are written to the origin.
    using Blocks = boost::dynamic_bitset<>;
    static constexpr std::uint64_t block_size = 4096;  // bytes

    explicit WrittenPages(std::uint64_t page_size) : blocks_(page_size / block_size) {}
    ~WrittenPages();
    WrittenPages(const WrittenPages&) = delete;
    WrittenPages& operator=(const WrittenPages&) = delete;

    bool contains(std::uint64_t page) const { return records_.contains(page); }
    std::size_t size() const { return records_.size(); }             // pages
    std::uint64_t bytes() const { return unwritten_ * block_size; }  // unwritten
    // When the oldest change was made that no round has begun with; empty: there is none.
    std::optional<Clock::time_point> oldest() const;

    // A write to the page begins. Throws std::bad_alloc, and nothing has changed then.
    void begin(std::uint64_t page);
    // It has ended, and may have changed `length` bytes from `offset` in the page on.
    // `waits`: is complete once they are in the origin; null: nothing waits for that.
    void end(std::uint64_t page, std::uint64_t offset, std::uint64_t length, SourceRequest* waits,
             Clock::time_point now);
    // It has ended, and has changed nothing that is needed.
    void cancel(std::uint64_t page);
    // Whether the page has changes that no round has begun with.
    bool is_unwritten(std::uint64_t page) const { return records_.at(page).unwritten.any(); }
    bool is_in_round(std::uint64_t page) const { return records_.at(page).is_in_round; }
    // `flush` is complete once all that is unwritten now is in the origin. Throws std::bad_alloc,
    // and nothing has changed then.
    void wait_for_all(SourceRequest& flush);
    // The page is written as if a request waited for it.
    void urge(std::uint64_t page);

    // A page that requests wait for, or else the oldest one, for which this is true.
    template <typename Predicate>
    std::optional<std::uint64_t> next_urgent(Predicate is_free) const {
        return first(urgent_, is_free);
    }
    template <typename Predicate>
    std::optional<std::uint64_t> next_by_age(Predicate is_free) const {
        return first(aged_, is_free);
    }
    // The changes of the page until now are about to be written to the origin: these blocks.
    const Blocks& begin_round(std::uint64_t page);
    // They have been, or have not. After a failure, the changes stay unwritten, or else are given
    // up: then the page has other contents than the origin. Returns the requests that are complete.
    enum class AfterFailure : std::uint8_t { keep, give_up };
    Requests end_round(std::uint64_t page, Status status, AfterFailure after);
    // The changes of the page are not wanted any more, or lost. No round is in progress.
    Requests discard(std::uint64_t page, Status status);

    // Ends the record of the page, if it is idle.
    enum class Rest : std::uint8_t {
        busy,     // it has a record still
        clean,    // the page is as in the origin
        spoiled,  // changes were given up, so the page must not be used
    };
    Rest forget(std::uint64_t page);

 private:
    using Hook = boost::intrusive::list_member_hook<
        boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
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
        Hook hook;
        void* list = nullptr;  // where the hook is linked
    };
    using Records =
        boost::intrusive::list<Record, boost::intrusive::member_hook<Record, Hook, &Record::hook>,
                               boost::intrusive::constant_time_size<false>>;

    // The predicate may require the mutex that the caller holds.
    template <typename Predicate>
    static std::optional<std::uint64_t> first(const Records& records,
                                              Predicate is_free) NO_THREAD_SAFETY_ANALYSIS {
        for (const Record& each : records) {
            if (is_free(each.page)) return each.page;
        }
        return std::nullopt;
    }
    // Puts the record into the list where it belongs now.
    void enqueue(Record& record);
    static void complete_one(SourceRequest& request, Status status, Requests& done);

    const std::uint64_t blocks_;   // of a page
    std::uint64_t unwritten_ = 0;  // blocks, also those that are being written
    std::unordered_map<std::uint64_t, Record> records_;  // by page
    // Those with unwritten blocks that are not in a round.
    Records urgent_;
    Records aged_;  // nearly by age: those that changed during a round come after it
};

}  // namespace gpunbd::storage
