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

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"
#include "storage/devices/slab_copy.hpp"
#include "storage/devices/slab_lenders.hpp"
#include "storage/origins/busy_pages.hpp"
#include "storage/origins/cached_pages.hpp"
#include "storage/origins/fetches.hpp"
#include "storage/origins/origin.hpp"
#include "storage/origins/origin_claim.hpp"
#include "storage/origins/origin_transfers.hpp"
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
    // See Origin. Another cache with the same one has the same contents.
    SourceId id_of_contents() const { return origin_->id_of_contents(); }
    bool can_be_written_to() const override { return options_.writes != Writes::none; }
    const Counters& counters() const override NO_THREAD_SAFETY_ANALYSIS { return counters_; }
    const OriginTimes& times() const override { return origin_->times(); }
    Unwritten unwritten() const override EXCLUDES(mutex_);

    bool has(std::uint64_t page) const override { return data_.test(page); }
    bool lacks(std::uint64_t page, Parts parts) const override;
    void fetch(PageRequest& request) noexcept override EXCLUDES(mutex_) { want(request, true); }
    // What follows a write is not read ahead: clients that write in sequence replace it.
    void map(PageRequest& request) noexcept override EXCLUDES(mutex_) { want(request, false); }
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
    bool begin_fill(std::uint64_t page, const PageRef& target, Parts parts, SourceRequest& write,
                    PageRequest& request) noexcept override;
    bool fill_rest(std::uint64_t offset, SourceRequest& write,
                   PageRequest& request) noexcept override EXCLUDES(mutex_);
    void end_write(std::uint64_t offset, std::uint64_t length, std::uint64_t filled,
                   SourceRequest& write) noexcept override EXCLUDES(mutex_);
    bool finish(SourceRequest& write, PageRequest& request) noexcept override EXCLUDES(mutex_);
    void zero(ZeroRequest& zero, PageRequest& request) noexcept override EXCLUDES(mutex_);
    void flush(SourceRequest& flush, PageRequest& request) noexcept override EXCLUDES(mutex_);

 private:
    using Clock = std::chrono::steady_clock;
    // Reads and writes of the origin at once: at the start, and when many of them take long.
    static constexpr std::uint32_t first_workers = 8;
    static constexpr std::uint32_t most_workers = 16;
    // Of these, what no request waits for: requests do not wait behind all of it.
    static constexpr std::uint32_t most_ahead = first_workers - 2;
    static constexpr std::uint32_t most_rounds_by_age = first_workers;
    static constexpr std::chrono::milliseconds long_work{2};
    static constexpr std::uint64_t pages_at_once = 1024;        // with the mutex held
    static constexpr std::uint32_t copied_at_once = 512 << 10;  // bytes, by each worker
    // A page that was dropped is free once the clients that were reading it have gone on.
    static constexpr std::chrono::milliseconds retry_interval{1};

    struct CloneRequest {
        OriginClone* clone = nullptr;
        PageRequest* request = nullptr;
        bool copies = false;  // the page; otherwise: makes room for it
    };
    // How much a page is needed that memory is taken for.
    enum class Demand : std::uint8_t {
        waiting,   // a client waits for it: other pages make room, now or later
        expected,  // a client will need it: other pages make room if they can
        none,      // it uses memory that is free
    };
    struct Worker {
        SlabCopier copier{copied_at_once};
        std::thread thread;
    };

    // At most.
    std::uint64_t pages_in_memory() const { return pages_in_memory_.load(); }
    // Takes over the pages of an earlier process.
    void adopt() REQUIRES(mutex_);
    void stop();
    // Throws std::system_error if there is no thread.
    void start_worker() REQUIRES(mutex_);
    void run(Worker& worker) noexcept;
    // It has worked for so long: another one starts if more could be done at the same time.
    void start_another(Clock::duration worked) REQUIRES(mutex_);
    // These may wait for memory, which writes make free. Each has a page, so a small cache has
    // fewer.
    std::uint32_t most_fetching() const REQUIRES(mutex_) {
        const std::uint64_t pages = std::max<std::uint64_t>(pages_in_memory() / 4, most_ahead);
        return static_cast<std::uint32_t>(std::min<std::uint64_t>(started_ - 2, pages));
    }
    // Does what is most urgent, if there is anything.
    bool work(Worker& worker) REQUIRES(mutex_);
    bool work_on_request(Worker& worker) REQUIRES(mutex_);
    bool perform_urgent_round(Worker& worker) REQUIRES(mutex_);
    bool perform_for_memory(Worker& worker) REQUIRES(mutex_);
    bool work_ahead(Worker& worker) REQUIRES(mutex_);
    void wait_for_work() REQUIRES(mutex_);
    std::size_t number_of(const Worker& worker) const {
        return static_cast<std::size_t>(&worker - workers_.data());
    }
    // Whether a worker may begin to write the page to the origin now.
    bool may_write(std::uint64_t page) REQUIRES(mutex_);
    void end_pages(const Worker& worker) REQUIRES(mutex_);

    // These release the mutex meanwhile.
    void perform_fetch(std::uint64_t page, Worker& worker) REQUIRES(mutex_);
    // For requests of a fetch that has failed: some of their parts may be readable.
    void answer_each(std::uint64_t page, PageRequests waiters, Parts failed, Worker& worker)
        REQUIRES(mutex_);
    void perform_round(std::uint64_t page, Worker& worker) REQUIRES(mutex_);
    void perform_zero(ZeroRequest& zero, Worker& worker) REQUIRES(mutex_);
    void perform_syncs() REQUIRES(mutex_);
    // Flushes the origin, and releases the mutex meanwhile.
    Status sync() REQUIRES(mutex_);
    void perform_room(PageRequest& request) REQUIRES(mutex_);
    void perform_for_clone(const CloneRequest& request, Worker& worker) REQUIRES(mutex_);

    // `reads`: the client reads.
    void want(PageRequest& request, bool reads) noexcept EXCLUDES(mutex_);
    void submit(const CloneRequest& request) noexcept EXCLUDES(mutex_);

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
    // The same for the rest of parts in which payload was cut.
    Status read_rests(WriteRecords::Fetching& fetching, const PageRef& to, SlabCopier& copier)
        EXCLUDES(mutex_);

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

    // Another export finds no memory on the device. The last slab stays.
    bool release_slab() noexcept override EXCLUDES(mutex_);
    std::uint64_t lendable() const noexcept override EXCLUDES(mutex_);
    // Drops the pages of a slab. False: one has to stay, or they are being dropped.
    bool drop_slab(std::uint32_t slab) REQUIRES(mutex_);
    // How many slabs can be given up, if their pages can be dropped.
    std::uint64_t spare_slabs() const REQUIRES(mutex_);
    // False: no page can be dropped.
    bool evict_one() EXCLUDES(mutex_);

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
    Status zero_origin(const ZeroRequest& zero, SlabCopier& copier) noexcept EXCLUDES(mutex_);
    // What is in memory of whole pages is not needed any more.
    void forget_pages(const ZeroRequest& zero) REQUIRES(mutex_);
    // The origin has no data in the page, unless a write has begun.
    void clear_data(std::uint64_t page) REQUIRES(mutex_) {
        written_.unless_written(page, [&] { data_.set(page, false); });
    }
    // Whether something waits for a worker, now or later, although the cache is paused.
    bool has_requests() const REQUIRES(mutex_);
    // Unmaps the page, unless it has to stay.
    bool drop_clean(std::uint64_t page) REQUIRES(mutex_);
    void set_lost(std::uint64_t page, bool is_lost) REQUIRES(mutex_) { lost_.set(page, is_lost); }
    void set_in_origin(std::uint64_t page, bool is_in_origin) REQUIRES(mutex_) {
        GPUNBD_ASSERT(busy_.is_used(page), "only the worker that uses a page changes it there");
        in_origin_.set(page, is_in_origin);
    }

    Volume& volume_;
    const std::unique_ptr<Origin> origin_;
    const Options options_;
    OriginTransfers transfers_;
    Atomic<std::uint64_t> pages_in_memory_;
    PageBits data_;  // set by writes that have begun, reset by clear_data()
    // Pages that may have other contents than zeroes in the origin. After the start, changed by
    // set_in_origin() only.
    PageBits in_origin_;
    Atomic<std::uint32_t> failures_{0};  // of devices, that were noticed
    Atomic<std::uint32_t> waiting_workers_{0};

    mutable Mutex mutex_;
    WrittenPages written_ GUARDED_BY(mutex_);
    WriteRecords& records_ = written_;  // what needs no mutex
    BusyPages busy_ GUARDED_BY(mutex_){most_workers};
    Fetches fetches_ GUARDED_BY(mutex_);
    CachedPages cached_ GUARDED_BY(mutex_);
    Counters counters_ GUARDED_BY(mutex_);  // other threads may read them without it
    Condition changed_;                     // something is to be done, or is_stopping_
    Condition pages_ended_;  // a worker has ended its work on pages that another one waits for
    Condition round_ended_;
    bool is_paused_ GUARDED_BY(mutex_) = false;
    bool has_to_flush_ GUARDED_BY(mutex_) = false;  // before it is paused
    bool is_flushed_ GUARDED_BY(mutex_) = true;     // it has not failed
    std::uint32_t started_ GUARDED_BY(mutex_) = 0;  // workers
    // Of these, those that do not wait for work; and evict().
    std::uint32_t working_ GUARDED_BY(mutex_) = 0;
    bool is_draining_ GUARDED_BY(mutex_) = false;  // everything is written at once
    bool is_stopping_ GUARDED_BY(mutex_) = false;
    bool has_changed_origin_ GUARDED_BY(mutex_) = false;
    // A flush has failed, so what was written before may be lost: no later flush may succeed.
    bool is_unsafe_ GUARDED_BY(mutex_) = false;
    Clock::time_point retry_at_ GUARDED_BY(mutex_);  // of failed writes that no request waits for
    Atomic<std::uint32_t> rounds_{0};                // workers that write a page
    std::uint32_t fetching_ GUARDED_BY(mutex_) = 0;  // that fetch one, or make room for one
    std::int32_t starving_ GUARDED_BY(mutex_) = 0;   // that find no page to evict for a client
    bool makes_room_next_ GUARDED_BY(mutex_) = false;
    bool is_zeroing_ GUARDED_BY(mutex_) = false;
    bool is_syncing_ GUARDED_BY(mutex_) = false;

    // Of a device that has failed.
    Mutex leaving_mutex_ ACQUIRED_BEFORE(mutex_);
    bool has_left_ GUARDED_BY(leaving_mutex_) = false;
    PageBits lost_;  // pages that are errors until they are zeroed; changed by set_lost() only

    PageRequests held_ GUARDED_BY(mutex_);   // of writes that wait until more is written
    PageRequests rooms_ GUARDED_BY(mutex_);  // of make_room()
    std::deque<CloneRequest> of_clones_ GUARDED_BY(mutex_);
    ChainedQueue<ZeroRequest> zeroes_ GUARDED_BY(mutex_);
    ChainedQueue<SourceRequest> syncs_ GUARDED_BY(mutex_);  // wait for a flush of the origin
    std::array<Worker, most_workers> workers_;
};

}  // namespace gpunbd::storage
