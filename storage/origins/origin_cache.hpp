// The pages of a volume with an origin are read from it when clients need them, stay in the memory
// of the volume's device as a cache, and are dropped when other programs need the memory. Those
// that clients write are written to the origin.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/devices/slab_copy.hpp"
#include "storage/devices/slab_lenders.hpp"
#include "storage/origins/origin.hpp"
#include "storage/origins/origin_claim.hpp"
#include "storage/origins/page_bits.hpp"
#include "storage/origins/written_pages.hpp"
#include "storage/pages/page_pool.hpp"
#include "storage/pages/page_source.hpp"

namespace gpunbd::storage {

class OriginClone;
class Volume;

// Does the work between one volume and its origin, on threads of its own: fetches absent pages,
// also ahead of clients that read in sequence, and writes changed ones. If the volume's memory is
// in use, the page that was used least recently makes room, as a clock finds it.
class OriginCache final : public PageCache, private SlabLender {
 public:
    enum class Ahead : std::uint8_t {
        nothing,
        sequences,  // what follows for clients that read in sequence
        all,        // besides, everything from the start, as far as the memory goes
    };
    // When a write is complete: when the origin has it, or when the memory has it.
    enum class Writes : std::uint8_t { none, through, back };
    struct Options {
        std::string export_name;  // for the log
        OriginClaim claim = {};
        // Its memory is the cache if the volume's device fails; null: there is none.
        Device* reserve = nullptr;
        Ahead reads_ahead = Ahead::sequences;
        Writes writes = Writes::none;
        // Of Writes::back. Writes wait while so much is unwritten. Older changes than so long, and
        // those beyond half of the bytes, are written to the origin.
        std::uint64_t max_unwritten = std::uint64_t{1} << 30;  // bytes
        std::chrono::milliseconds max_age{30'000};
        // An earlier process has used the origin, and may not have flushed it.
        bool continues = false;
    };
    // The volume outlives it. If it was taken over, what an earlier process has left unwritten is
    // written now. If it is quiesced, the cache begins paused. Throws std::system_error if there
    // are no threads, and std::bad_alloc.
    OriginCache(Volume& volume, std::unique_ptr<Origin> origin, Options options);
    // Writes what is unwritten, and waits for reads in progress.
    ~OriginCache() override;

    const std::string& name() const override { return origin_->name(); }
    bool can_be_written_to() const override { return options_.writes != Writes::none; }
    const Counters& counters() const override NO_THREAD_SAFETY_ANALYSIS { return counters_; }
    const OriginTimes& times() const override { return origin_->times(); }
    Unwritten unwritten() const override EXCLUDES(mutex_);

    bool has(std::uint64_t page) const override { return data_.test(page); }
    void fetch(PageRequest& request) noexcept override EXCLUDES(mutex_);
    void make_room(PageRequest& request) noexcept override EXCLUDES(mutex_);
    bool drop(std::uint64_t page) override EXCLUDES(mutex_);
    std::uint64_t evict(std::uint64_t pages) override EXCLUDES(mutex_);
    void prefetch(std::uint64_t offset, std::uint64_t length) noexcept override EXCLUDES(mutex_);
    void pause() noexcept override EXCLUDES(mutex_);
    bool is_paused() const override EXCLUDES(mutex_);
    std::optional<std::string> why_it_stays() const override EXCLUDES(mutex_);
    std::optional<std::string> hand_over() override EXCLUDES(mutex_);
    void set_draining(bool is_draining) noexcept override EXCLUDES(mutex_);
    void resume() noexcept override EXCLUDES(mutex_);
    OwnedFd lock() const override;

    // Do the work of a clone and complete the request. Do not block.
    void copy_to(OriginClone& clone, PageRequest& request) noexcept EXCLUDES(mutex_) {
        submit({.clone = &clone, .request = &request, .copies = true});
    }
    void make_room_in(OriginClone& clone, PageRequest& request) noexcept EXCLUDES(mutex_) {
        submit({.clone = &clone, .request = &request});
    }

    // Each waits for the payload of its client, which may be slow.
    std::uint64_t pages_of_a_write() const override {
        return std::max<std::uint64_t>(pages_in_memory() / 16, 1);
    }
    std::optional<Status> begin_write(std::uint64_t page, SourceRequest& write,
                                      PageRequest& request) noexcept override EXCLUDES(mutex_);
    void end_write(std::uint64_t offset, std::uint64_t length,
                   SourceRequest& write) noexcept override EXCLUDES(mutex_);
    bool finish(SourceRequest& write, PageRequest& request) noexcept override EXCLUDES(mutex_);
    void zero(ZeroRequest& zero, PageRequest& request) noexcept override EXCLUDES(mutex_);
    void flush(SourceRequest& flush, PageRequest& request) noexcept override EXCLUDES(mutex_);

 private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::uint32_t workers = 8;  // reads and writes of the origin at once
    // These may wait for memory, which writes make free.
    static constexpr std::uint32_t most_fetching = workers - 2;
    static constexpr std::uint64_t pages_at_once = 1024;  // with the mutex held

    // Parts of a page that are to be fetched, or are being fetched.
    struct Fetch {
        Parts parts = 0;  // if it is running, these do not change
        PageRequests waiters = {};
        // After it, there is another one for these.
        Parts later_parts = 0;
        PageRequests later_waiters = {};
        bool is_running = false;
        bool is_wanted = false;  // by a client
        bool is_ahead = false;   // no client wanted it at first
        bool fills = false;      // for Ahead::all, so no other page makes room
    };
    // A page of the pool, as the hand of the clock has left it.
    struct Cached {
        std::uint64_t number = 0;  // in the volume, if that is mapped to this page
        std::uint32_t uses = 0;    // PageStates::uses()
        bool is_ahead = false;     // it was read ahead of clients, and none has used it
    };
    struct Pages {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;

        bool overlaps(Pages other) const { return begin < other.end && other.begin < end; }
    };
    // Parts are numbered through all pages of the volume.
    struct PartRange {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
    };
    // Clients that read in sequence.
    struct Stream {
        std::uint64_t next = 0;    // the part after those that are read ahead
        std::uint64_t window = 0;  // how many parts were read ahead the last time
    };
    struct CloneRequest {
        OriginClone* clone = nullptr;
        PageRequest* request = nullptr;
        bool copies = false;  // the page; otherwise: makes room for it
    };
    // What a worker works on.
    struct Used {
        Pages pages;
        bool is_waiting = false;  // for other workers to end, before it begins
    };
    // How much a page is needed that memory is taken for.
    enum class Demand : std::uint8_t {
        waiting,   // a client waits for it: other pages make room, now or later
        expected,  // a client will need it: other pages make room if they can
        none,      // it uses memory that is free
    };
    struct Worker {
        SlabCopier copier;
        std::thread thread;
    };

    // At most.
    std::uint64_t pages_in_memory() const { return pages_in_memory_.load(); }
    // How far is read ahead at most, in parts.
    std::uint64_t longest_window() const;
    // Takes over the pages of an earlier process.
    void adopt() REQUIRES(mutex_);
    void stop();
    void run(Worker& worker) noexcept;
    // Does what is most urgent, if there is anything.
    bool work(Worker& worker) REQUIRES(mutex_);
    bool work_on_request(Worker& worker) REQUIRES(mutex_);
    bool perform_urgent_round(Worker& worker) REQUIRES(mutex_);
    bool perform_for_memory(Worker& worker) REQUIRES(mutex_);
    bool work_ahead(Worker& worker) REQUIRES(mutex_);
    void wait_for_work() REQUIRES(mutex_);
    // Whether a worker works on the page; `also_waiting`: or waits to do so.
    bool is_used(std::uint64_t page, bool also_waiting) const REQUIRES(mutex_);
    // Whether a worker may begin with it now. False: workers look for work again after end_pages().
    bool may_fetch(std::uint64_t page) REQUIRES(mutex_);
    bool may_write(std::uint64_t page) REQUIRES(mutex_);
    // The worker works on these pages from now on, and on none again.
    void begin_pages(const Worker& worker, Pages pages) REQUIRES(mutex_) {
        used(worker) = {.pages = pages};
    }
    void end_pages(const Worker& worker) REQUIRES(mutex_);
    Used& used(const Worker& worker) REQUIRES(mutex_) {
        return used_[static_cast<std::size_t>(&worker - workers_.data())];
    }

    // The next page to be fetched.
    std::optional<std::uint64_t> next_of(std::deque<std::uint64_t>& queue) REQUIRES(mutex_);
    std::optional<std::uint64_t> next_of_all() REQUIRES(mutex_);
    // Fetches parts of prefetches_, or passes some that need not be fetched. False: neither.
    bool perform_prefetch(Worker& worker) REQUIRES(mutex_);
    // Those of the range in its first page.
    Parts first_of(PartRange range) const;
    // The parts of these that the origin has and the memory has not.
    Parts absent_of(std::uint64_t page, Parts parts) const;
    // These release the mutex meanwhile.
    void perform_fetch(std::uint64_t page, Worker& worker) REQUIRES(mutex_);
    // For requests of a fetch that has failed: some of their parts may be readable.
    void answer_each(std::uint64_t page, PageRequests waiters, Parts failed, Worker& worker)
        REQUIRES(mutex_);
    // Begins the fetch of what is wanted besides. False: there is nothing.
    bool fetch_later_parts(std::uint64_t page, Fetch& fetch) noexcept REQUIRES(mutex_);
    void perform_round(std::uint64_t page, Worker& worker) REQUIRES(mutex_);
    void perform_zero(ZeroRequest& zero, Worker& worker) REQUIRES(mutex_);
    void perform_syncs() REQUIRES(mutex_);
    // Flushes the origin, and releases the mutex meanwhile.
    Status sync() REQUIRES(mutex_);
    void perform_room(PageRequest& request) REQUIRES(mutex_);
    void perform_for_clone(const CloneRequest& request, Worker& worker) REQUIRES(mutex_);

    void submit(const CloneRequest& request) noexcept EXCLUDES(mutex_);

    void follow(std::uint64_t page, Parts parts) noexcept REQUIRES(mutex_);
    // A fetch of the page reads these parts too, now (`joins_first`) or after its own. False: there
    // is none.
    bool joins_fetch(std::uint64_t page, Parts parts, bool joins_first) REQUIRES(mutex_);
    // `joins`: see joins_fetch(). Throws std::bad_alloc.
    void read_ahead(std::uint64_t page, Parts parts, bool joins) REQUIRES(mutex_);
    // no_space: there is no memory for a page that no client waits for.
    Status load(std::uint64_t page, Parts parts, SlabCopier& copier) noexcept EXCLUDES(mutex_);
    // `demand`: returns the Demand, which may grow meanwhile.
    template <typename GetDemand>
    Status take(std::uint64_t page, PageRef& out, GetDemand demand) EXCLUDES(mutex_);
    void set_starving(bool is_starving) EXCLUDES(mutex_);
    // Parts from the origin are in the volume. no_space: likewise.
    Status fill(std::uint64_t page, Parts parts, SlabCopier& copier) EXCLUDES(mutex_);
    Status read(std::uint64_t page, Parts parts, const PageRef& to, SlabCopier& copier)
        EXCLUDES(mutex_);
    // `bytes`: grows by those that were read.
    Status read_run(std::uint64_t offset, std::uint64_t length, SlabPosition to, SlabCopier& copier,
                    std::uint64_t& bytes) EXCLUDES(mutex_);

    // The device of the volume has failed: pages are taken from the reserve from now on, and those
    // on the device are read from the origin again. False: there is no reserve.
    bool leave_device() EXCLUDES(mutex_);
    bool has_failed_device() const;
    // Drops a page, if it is on the failed device, and what is unwritten of it is lost. A page that
    // a worker is writing to the origin stays until the worker has failed: false then.
    bool abandon_unreadable(std::uint64_t page) REQUIRES(mutex_);
    void lose(std::uint64_t page) REQUIRES(mutex_);
    Status store(std::uint64_t page, const WrittenPages::Blocks& blocks,
                 SlabCopier& copier) noexcept EXCLUDES(mutex_);
    // The clock finds the page of this number from now on. `is_wanted`: a client waits for it; this
    // use is no reason to keep it.
    void remember(std::uint64_t page, bool is_wanted) REQUIRES(mutex_);
    const PageStates& states() const REQUIRES(mutex_);
    // Another export finds no memory on the device. The last slab stays.
    bool release_slab() noexcept override EXCLUDES(mutex_);
    std::uint64_t lendable() const noexcept override EXCLUDES(mutex_);
    // Drops the pages of a slab. False: one has to stay, or they are being dropped.
    bool drop_slab(std::uint32_t slab) REQUIRES(mutex_);
    // How many slabs can be given up, if their pages can be dropped.
    std::uint64_t spare_slabs() const REQUIRES(mutex_);
    // Whether the volume has the page of this index now, as `cached_` says; and whether it would
    // make room, so it is not pinned, and need not stay.
    bool is_here(std::size_t index) const REQUIRES(mutex_);
    bool makes_room(std::size_t index) const REQUIRES(mutex_);
    // False: no page can be dropped.
    bool evict_one() EXCLUDES(mutex_);
    const Cached* next_to_evict() REQUIRES(mutex_);

    bool waits_for_origin(const SourceRequest& write) const {
        return options_.writes == Writes::through || write.is_durable;
    }
    // Lets a write to the page begin. False: too much is unwritten.
    bool begin_record(std::uint64_t page);
    // A worker looks for work, if one waits.
    void wake_worker() noexcept EXCLUDES(mutex_);
    // Whether changes that no request waits for are written to the origin now; and whether that
    // does not depend on their age.
    bool writes_now() const REQUIRES(mutex_);
    bool has_to_write() const REQUIRES(mutex_);
    // Ends the record of a page that no write and no worker uses any more.
    void settle(std::uint64_t page) REQUIRES(mutex_);
    // Of these requests, no page is left. Those that are durable wait for a flush of the origin.
    void complete_all(WrittenPages::Requests requests) REQUIRES(mutex_);
    Status flush_origin() noexcept EXCLUDES(mutex_);
    Origin::Error zero_blocks(const ZeroRequest& zero);
    Status zero_origin(const ZeroRequest& zero, SlabCopier& copier) noexcept EXCLUDES(mutex_);
    // What is in memory of whole pages is not needed any more.
    void forget_pages(const ZeroRequest& zero) REQUIRES(mutex_);
    Pages pages_of(const ZeroRequest& zero) const;
    Pages whole_pages_of(const ZeroRequest& zero) const;
    // The origin has no data in the page, unless a write has begun.
    void clear_data(std::uint64_t page) REQUIRES(mutex_) {
        written_.unless_written(page, [&] { data_.set(page, false); });
    }
    // Whether something waits for a worker, now or later, although the cache is paused.
    bool has_requests() const REQUIRES(mutex_);
    // Unmaps the page, unless it has to stay.
    bool drop_clean(std::uint64_t page) REQUIRES(mutex_);
    void set_lost(std::uint64_t page, bool is_lost) REQUIRES(mutex_) { lost_.set(page, is_lost); }
    // Once until the origin works again.
    void log_error(const char* what, const std::string& why) noexcept EXCLUDES(mutex_);
    void log_loss(const std::string& why) noexcept;
    void log_line(const char* what, const std::string& why) noexcept;

    Volume& volume_;
    const std::unique_ptr<Origin> origin_;
    const Options options_;
    Atomic<std::uint64_t> pages_in_memory_;
    PageBits data_;                      // set by writes that have begun, reset by clear_data()
    Atomic<std::uint32_t> failures_{0};  // of devices, that were noticed
    Atomic<std::uint32_t> waiting_workers_{0};

    mutable Mutex mutex_;
    WrittenPages written_ GUARDED_BY(mutex_);
    WriteRecords& records_ = written_;      // what needs no mutex
    Counters counters_ GUARDED_BY(mutex_);  // other threads may read them without it
    Condition changed_;                     // something is to be done, or is_stopping_
    Condition pages_ended_;  // a worker has ended its work on pages that another one waits for
    Condition round_ended_;
    bool is_paused_ GUARDED_BY(mutex_) = false;
    bool has_to_flush_ GUARDED_BY(mutex_) = false;  // before it is paused
    bool is_flushed_ GUARDED_BY(mutex_) = true;     // it has not failed
    // Workers that do not wait for work, and evict().
    std::uint32_t working_ GUARDED_BY(mutex_) = 0;
    bool awaits_pages_ GUARDED_BY(mutex_) = false;  // a worker, or work
    bool is_draining_ GUARDED_BY(mutex_) = false;   // everything is written at once
    bool is_stopping_ GUARDED_BY(mutex_) = false;
    bool has_failed_ GUARDED_BY(mutex_) = false;  // the last read or write of the origin
    bool has_changed_origin_ GUARDED_BY(mutex_) = false;
    // A flush has failed, so what was written before may be lost: no later flush may succeed.
    bool is_unsafe_ GUARDED_BY(mutex_) = false;
    Clock::time_point retry_at_ GUARDED_BY(mutex_);  // of failed writes that no request waits for
    std::uint32_t rounds_ GUARDED_BY(mutex_) = 0;    // workers that write a page
    std::uint32_t fetching_ GUARDED_BY(mutex_) = 0;  // that fetch one, or make room for one
    std::int32_t starving_ GUARDED_BY(mutex_) = 0;   // that find no page to evict for a client
    bool makes_room_next_ GUARDED_BY(mutex_) = false;
    bool is_zeroing_ GUARDED_BY(mutex_) = false;
    bool is_syncing_ GUARDED_BY(mutex_) = false;

    std::unordered_map<std::uint64_t, Fetch> fetches_ GUARDED_BY(mutex_);
    std::deque<std::uint64_t> wanted_ GUARDED_BY(mutex_);
    std::deque<std::uint64_t> ahead_ GUARDED_BY(mutex_);
    std::array<Stream, 8> streams_ GUARDED_BY(mutex_);
    // What is left of the ranges of prefetch(), and how many pages may be fetched for them.
    std::deque<PartRange> prefetches_ GUARDED_BY(mutex_);
    std::uint64_t prefetches_left_ GUARDED_BY(mutex_) = 0;
    // The next page of Ahead::all, and its end.
    std::uint64_t next_of_all_ GUARDED_BY(mutex_) = 0;
    std::uint64_t end_of_all_ GUARDED_BY(mutex_) = 0;
    std::uint32_t next_stream_ GUARDED_BY(mutex_) = 0;  // the one that is replaced next
    std::uint32_t pool_ GUARDED_BY(mutex_) = 0;         // of the volume, with the pages
    std::vector<Cached> cached_ GUARDED_BY(mutex_);     // by PageIndex
    std::size_t hand_ GUARDED_BY(mutex_) = 0;           // the next one

    // Of a device that has failed.
    Mutex leaving_mutex_ ACQUIRED_BEFORE(mutex_);
    bool has_left_ GUARDED_BY(leaving_mutex_) = false;
    PageBits lost_;  // pages that are errors until they are zeroed; changed by set_lost() only

    PageRequests held_ GUARDED_BY(mutex_);   // of writes that wait until more is written
    PageRequests rooms_ GUARDED_BY(mutex_);  // of make_room()
    std::deque<CloneRequest> of_clones_ GUARDED_BY(mutex_);
    ChainedQueue<ZeroRequest> zeroes_ GUARDED_BY(mutex_);
    ChainedQueue<SourceRequest> syncs_ GUARDED_BY(mutex_);  // wait for a flush of the origin
    // By worker. No other one fetches, writes or zeroes these pages meanwhile.
    std::array<Used, workers> used_ GUARDED_BY(mutex_);
    std::array<Worker, workers> workers_;
};

}  // namespace gpunbd::storage
