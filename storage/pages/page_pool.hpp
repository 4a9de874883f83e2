// The pages of one export, or of several exports that share pages, on one device. A page pool
// allocates slabs, cuts them into pages, and tracks which pages are mapped, pinned and free. It
// never reuses a page that is still pinned.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/atomic.hpp"
#include "storage/base/mutex.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/page_request.hpp"
#include "storage/pages/free_pages.hpp"
#include "storage/pages/growing_array.hpp"
#include "storage/pages/imported_slabs.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/pin_counts.hpp"
#include "storage/pages/pool_config.hpp"
#include "storage/pages/pool_slabs.hpp"
#include "storage/pages/provisioner.hpp"
#include "storage/pages/retired_pages.hpp"

namespace gpunbd::storage {

class PageRef;

class PagePool {
 public:
    using Config = PoolConfig;
    using Descriptors = PoolSlabs::Descriptors;
    using SlabCopy = PoolSlabs::Copy;

    // The best slab size for so many pages. Each retained slab costs a descriptor, so `retained`
    // gives large volumes larger slabs.
    static std::uint32_t slab_pages_for(std::uint64_t pages, std::uint64_t page_size,
                                        bool retained);
    // How many slabs hold so many pages; at least one.
    static std::uint32_t slabs_for(std::uint64_t pages, std::uint32_t slab_pages) {
        return static_cast<std::uint32_t>(
            std::max<std::uint64_t>((pages + slab_pages - 1) / slab_pages, 1));
    }

    PagePool(Device& device, const Config& config);
    ~PagePool();
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    // Provision::full: allocates every slab now, unless `stop` is requested between two slabs.
    Status fill(const std::stop_token& stop = {});
    // Whether fill() would allocate a slab, because one has been released; and allocates one.
    bool lacks_slab() const;
    Status add_missing_slab();
    // Starts the thread that calls the device. Returns false if the system refuses a thread.
    bool start_provisioner() noexcept { return provisioner_.start(); }

    // Adopts the slabs in the directory, which another process made, and takes their descriptors.
    // `entries` has, for each page, how many page table entries refer to it. Slabs may be in
    // `imported` already, which may be null. Returns an empty text, or the reason for a failure.
    // Call commit_adoption() or abandon() next; abandon() if this throws.
    using EntryCounts = std::vector<std::uint32_t>;
    std::string adopt(Descriptors& descriptors, const EntryCounts& entries,
                      ImportedSlabs* imported);
    // The pool serves from now on. Pages that are not mapped become free.
    void commit_adoption(const EntryCounts& entries) noexcept;
    // Adoption leaves mapping slabs into the CPU's address space for later: false until it is done.
    bool adoption_finished() const;
    // Lets the provisioner do that from now on.
    void finish_adoption() noexcept;
    // Releases all slabs. Adopted slabs stay retained and in the directory; slabs made here do not.
    // Afterwards the pool can only be destroyed.
    void abandon() noexcept;

    // Until resume(), only map(), take() and copies make slabs, no slab is released, no release is
    // announced, and no page moves. Waits for work in progress. Page requests wait.
    void quiesce();
    void resume();
    // The slabs as the directory has them, with copies of their descriptors. Throws
    // std::system_error if a descriptor cannot be copied.
    std::vector<SlabCopy> copy_slabs() const;
    // One more than the largest page index.
    std::size_t page_numbers() const { return slabs_.page_numbers(); }

    // Maps a page that reads as zeroes to page number `number` of the volume, whose entry is
    // `slot`, unless it is mapped already. `out` pins it for writing; it is a hole if the entry has
    // to be looked at again. Returns false if the device would have to be called.
    bool map_at_once(std::uint64_t number, EntrySlot slot, PageRef& out);
    // The same, but calls the device. Blocks.
    Status map(std::uint64_t number, EntrySlot slot, PageRef& out);
    // The provisioner maps the page and completes the request.
    void submit(PageRequest& request);
    // The entry becomes a hole. Its page is reused once it is neither mapped elsewhere nor pinned.
    // While the pool is frozen, submits `request`, which is completed when that has ended; null:
    // blocks until then.
    enum class Replaced : std::uint8_t { done, moved_to_other_pool, later };
    Replaced unmap(std::uint64_t number, EntrySlot slot, PageRequest* request = nullptr);

    // Takes a page that reads as zeroes. Blocks.
    Status take(PageIndex& page);
    // The same for a page that moves here: it may contain anything. Into a slab of `kind` if given.
    // Fixed slabs are made if necessary, also one more than the exports need; revocable ones are
    // not. A quiesced pool makes no slab.
    Status take_target(PageIndex& page, std::optional<SlabKind> kind);
    // Returns a page that was taken and never mapped; the second one, a page of take_target().
    void put_back(PageIndex page);
    void put_back_target(PageIndex page);

    // Moving a page to another pool. Between begin_move() and the end of the move the page is read
    // but not written: writers wait. Any thread may move pages, but one thread at a time moves the
    // page of a given number.
    //
    // False: the page is not mapped here, or is being written. Otherwise `out` pins it. `slot` is
    // the entry of page number `number` in one of the tables.
    bool begin_move(std::uint64_t number, EntrySlot slot, PageRef& out);
    // The entries of `from` in all tables refer to `page` of `target` from now on, which has the
    // contents. False: the page was unmapped meanwhile, and `page` is still the caller's.
    bool commit_move(std::uint64_t number, PageIndex from, PagePool& target, PageIndex page);
    void cancel_move(std::uint64_t number, PageIndex from);
    // `request` is completed when the move has ended. False: the page is not moving.
    bool wait_for_move(EntrySlot slot, PageRequest& request);

    // Sharing pages, which have the same number in all tables that refer to them. In
    // page_pool_sharing.cpp.
    //
    // The pool has `pages` more pages for this table, which outlives the pool or is removed. Throws
    // std::bad_alloc.
    void add_table(const PageTable& table, std::uint64_t pages);
    // The same for all tables of `home`, the pool from which pages can be moved here.
    void add_tables_of(const PagePool& home);
    // The table is not used here any more. `empty`: no entry refers to the pool, which may release
    // slabs; waits for that. Otherwise another process uses the table.
    void remove_table(const PageTable& table, bool empty) noexcept;
    // The slab directory of retained slabs is there from now on, so that further tables can share
    // it. It is kept already.
    void move_directory(const std::shared_ptr<const SharedDirectory>& target);
    std::shared_ptr<const SharedDirectory> shared_directory() const;
    bool has_other_tables(const PageTable& table) const;
    // The table has so many pages here from now on. After a growth fill() may be needed.
    void resize(const PageTable& table, std::uint64_t pages) noexcept;
    // Whether the table is the first of those that share the pool now.
    bool is_first(const PageTable& table) const;
    // Serializes clones of the volumes that share the pool.
    Mutex& cloning() RETURN_CAPABILITY(cloning_) { return cloning_; }
    // Until thaw(), no hole is mapped, and no entry of a page becomes a hole or refers to a copy.
    void freeze();
    void thaw();
    // The pages of `from` are in `to` too, from number `begin` on. Returns the first number that is
    // not done: `end`, or one with a page in another pool, or after some pages. If the page of a
    // number is being written, appends the number to `written`, which has room, and clients that
    // want to write the page wait until settle() or copy_written().
    std::uint64_t share(const PageTable& from, const PageTable& to, std::uint64_t begin,
                        std::uint64_t end, std::vector<std::uint64_t>& written);
    // The page of this number is shared from now on. False: it is still being written.
    bool settle(const PageTable& from, const PageTable& to, std::uint64_t number);
    // `to` gets a copy of the page, which may have parts of writes in progress. `home`: the pool of
    // the device on which the layout places the page. Blocks. After an error, call
    // cancel_sharing().
    Status copy_written(const PageTable& from, const PageTable& to, std::uint64_t number,
                        PagePool& home);
    void cancel_sharing(const PageTable& from, const PageTable& to, std::uint64_t number);
    // Makes a page writable that no other table has, and pins it for writing; a hole if the entry
    // has to be looked at again. False: the page has to be copied.
    bool claim(EntrySlot slot, PageRef& out);
    // The entry of a number that the layout places here gets a copy of its page, if the page is
    // shared. The page may be in spill memory. Blocks.
    Status copy_shared(EntrySlot slot);
    // Takes a free page with any contents, which is to replace a shared one, and pins it for
    // writing. Does not call the device. A hole: there is none, or this pool has to copy. Call
    // replace() or give_up() next, once.
    PageRef take_replacement();
    // The entry of a page of this pool, or of a hole, refers to `page` from now on, which has the
    // new contents. `later`: nothing has changed, since a clone is being made.
    Replaced replace(EntrySlot slot, const PageRef& page);
    // The page is free once it is not pinned any more.
    static void give_up(PageRef page);
    // Whether another table has the page. Any thread, of a page that is mapped.
    bool is_shared(PageIndex page) const {
        return sharers_[page].load(std::memory_order_relaxed) != 0;
    }

    // From now on no free page of the slab is used, and the slab is released once it is empty.
    // False: there is no such slab. stop_draining() reverses that, unless the slab is empty.
    bool drain(std::uint32_t slab);
    void stop_draining(std::uint32_t slab);
    bool is_allocated(std::uint32_t slab) const;
    SlabKind kind_of(std::uint32_t slab) const;

    // The pools to which pages are mapped if this one has no memory, in order. They outlive this
    // pool. One thread at a time may call it, while other threads use the pool and earlier results
    // of spills(). Throws std::bad_alloc.
    using Spills = std::vector<PagePool*>;
    void set_spills(Spills spills);
    std::span<PagePool* const> spills() const {
        const Spills* const current = spills_.load(std::memory_order_acquire);
        return current == nullptr ? std::span<PagePool* const>() : *current;
    }
    // The index of the device on which the layout creates the pages that are here.
    std::uint32_t home() const { return home_; }

    // A pin holds a page if the caller still sees it mapped after pin() has returned, and writable
    // if it is a pin for writing. Otherwise the page may be in use elsewhere, and the caller
    // has to unpin it. Either the pinning thread sees that the page is unmapped or moving, or the
    // thread that changes this sees the pin; either the unpinning thread sees that the page is
    // retired, or the retiring thread sees that no pin is left. This holds since each side stores
    // before it loads, and these operations are sequentially consistent.
    void pin(PageIndex page, Access access) {
        GPUNBD_ASSERT(page < page_numbers(),
                      "the numbers of a pool grow before its pages are used");
        pins_.add(page, access);
    }
    void unpin(PageIndex page, Access access) {
        pins_.remove(page, access);
        if (retired_.contains(page)) free_if_unpinned(page);
    }
    // How often the page was pinned, modulo 2^20.
    std::uint32_t uses(PageIndex page) const { return pins_.uses(page); }

    // For pages that are pinned or taken.
    const PoolSlabs& slabs() const { return slabs_; }

    Device& device() const { return device_; }
    std::uint64_t mapped_bytes() const {
        return mapped_pages_.load(std::memory_order_relaxed) * page_size_;
    }
    std::uint64_t allocated_bytes() const;
    std::uint64_t allocated_slabs() const;
    // The most that the volumes can map.
    std::uint64_t promised_bytes() const;
    // Memory of pages that are unmapped but still pinned.
    std::uint64_t retired_bytes() const;

 private:
    bool pin_retired(std::uint64_t number, EntrySlot slot, PageIndex& page) EXCLUDES(mutex_);
    Status map_retired(EntrySlot slot, PageIndex page, PageRef& out) EXCLUDES(mutex_);
    struct TakenPage {
        PagePool* owner = nullptr;
        PageIndex page = 0;
    };
    bool map_taken(std::uint64_t number, EntrySlot slot, const TakenPage& taken, PageRef& out)
        EXCLUDES(mutex_);
    // Why a page is taken: to be mapped with zeroes, or to be filled by a copy or by a move.
    enum class Purpose : std::uint8_t { zeroes, copy, move };
    Status take(PageIndex& page, Purpose purpose) EXCLUDES(mutex_);
    // Takes a page for a number that the layout places here: a page of this pool, or of the first
    // spill memory that has one. Passes over devices that have failed.
    Status take_in_order(TakenPage& out, Purpose purpose) EXCLUDES(mutex_);
    void free_if_unpinned(PageIndex page) EXCLUDES(mutex_);
    // `discards`: false if the pool was quiesced before: another process may use the page already.
    void free(PageIndex page, bool discards) EXCLUDES(mutex_);
    Status clear(PageIndex page) EXCLUDES(mutex_);
    // Of a page of this pool. `home`: see copy_written().
    Status copy_shared(EntrySlot slot, PagePool& home) EXCLUDES(mutex_);
    Status make_copy(PageIndex page, PagePool& home, TakenPage& out) EXCLUDES(mutex_);
    Status copy_contents(PageIndex page, const TakenPage& to) noexcept EXCLUDES(mutex_);
    bool discard(PageIndex page) noexcept EXCLUDES(mutex_);
    Status allocate(std::uint32_t number, const SlabRequest& request, Slab& slab) EXCLUDES(mutex_);
    bool may_wait_for_others() const EXCLUDES(mutex_);
    std::string adopt_slab(std::uint32_t number, SlabEntry entry, Descriptors& descriptors,
                           ImportedSlabs* imported) REQUIRES(mutex_);
    // The provisioner's work, and the part of it that is done without a provisioner.
    void provision() EXCLUDES(mutex_);
    void release_empty_slabs() EXCLUDES(mutex_);
    void wake_provisioner() EXCLUDES(mutex_);
    static void complete(PageRequests requests, Status status);
    class PoolLock;

    // With the lock held that guards the entry, see page_entry.hpp. It may be another pool's.
    void publish(EntrySlot slot, PageIndex page, PageRef& out);

    void wait_for_thaw() REQUIRES(mutex_);
    void drop(PageIndex page, std::uint64_t number) REQUIRES(mutex_);
    bool store_moving(std::uint64_t number, PageIndex page, PageEntry entry) REQUIRES(mutex_);
    void stop_moving(std::uint64_t number, PageIndex page) REQUIRES(mutex_);
    PageEntry entry_of(PageIndex page) REQUIRES(mutex_);
    // These return the requests that have waited for the end: see PoolLock::unlock_and_complete().
    PageRequests end_move() REQUIRES(mutex_);
    PageRequests end_sharing(EntrySlot slot, PageIndex page) REQUIRES(mutex_);
    std::uint32_t number_of_next_slab() REQUIRES(mutex_);
    bool moves_from_here(PageEntry entry) const;
    bool is_retired_from(PageEntry entry, std::uint64_t number) const REQUIRES(mutex_);
    bool has_page(EntrySlot slot, std::uint64_t number) const REQUIRES(mutex_);
    bool take_free_page(FreePages::Page& page) REQUIRES(mutex_);
    bool take_free_page(FreePages::Page& page, SlabKind kind) REQUIRES(mutex_);
    void take_out(FreePages::Page page) REQUIRES(mutex_);
    void end_pending() REQUIRES(mutex_);
    // A replacement or a target is mapped or given back.
    void end_filling();
    bool releases_later() const;
    // Updates PendingReleases. Must be called after each change of the slabs to be released.
    void announce_releases() REQUIRES(mutex_);
    std::uint32_t releasable_slabs() const REQUIRES(mutex_);
    std::uint32_t slab_to_release() const REQUIRES(mutex_);
    bool can_prepare() const REQUIRES(mutex_);
    // Whether the provisioner has slabs to release or can prepare pages: see
    // PoolLock::unlock_and_wake().
    bool has_work() const REQUIRES(mutex_);
    std::uint32_t pages_of_next_slab(bool fixed) const REQUIRES(mutex_);

    // These release the lock while they call the device.
    void put_back(FreePages::Page page) REQUIRES(mutex_);
    // `fixed`: the slab must not be revocable, and may be one more than the exports need.
    Status add_slab(bool fixed = false) REQUIRES(mutex_);
    Status add_slab_of(std::uint32_t pages, bool fixed) REQUIRES(mutex_);
    Status clear_a_page() REQUIRES(mutex_);
    void release_slab(std::uint32_t number) REQUIRES(mutex_);
    void release_surplus() REQUIRES(mutex_);
    bool map_adopted_slab() REQUIRES(mutex_);
    Status prepare() REQUIRES(mutex_);
    void complete_requests() REQUIRES(mutex_);

    Device& device_;
    const std::uint32_t device_index_;  // in the volume
    const std::uint32_t home_;
    const std::uint64_t page_size_;
    const std::uint64_t made_pages_;    // of the volume when it was made
    const std::uint64_t max_reserved_;  // pages in slabs, without other tables
    const Provision provision_;
    const bool is_spill_;
    // Empty slabs that are not released, so that a page that comes and goes does not allocate each
    // time.
    const std::uint32_t spare_slabs_;
    // Whether the provisioner allocates, clears and releases ahead of need.
    const bool ahead_;
    PoolSlabs slabs_;
    PinCounts pins_;
    RetiredPages retired_;
    Atomic<std::uint64_t> mapped_pages_{0};
    Atomic<std::uint32_t> filling_{0};  // replacements and targets that are not mapped yet
    // All that other threads may use.
    std::vector<std::unique_ptr<const Spills>> spill_lists_ GUARDED_BY(mutex_);
    Atomic<const Spills*> spills_{nullptr};  // the last one
    Mutex mapping_mutex_;  // serializes map(): one page at a time waits for the device
    Mutex cloning_;
    // How many tables have the page, besides one. Changed with the lock held.
    GrowingArray<Atomic<std::uint32_t>> sharers_;

    // Also held while slabs_ and retired_ change. Not held while the device is called,
    // except by adopt(): the pool has no users yet.
    mutable Mutex mutex_;
    FreePages free_ GUARDED_BY(mutex_);
    std::uint64_t pages_ GUARDED_BY(mutex_);  // the most that the exports can map
    struct Table {
        const PageTable* table = nullptr;
        std::uint64_t pages = 0;  // the most that it can map here

        // The entry of page number `number`, which may be beyond the end of the table: a write or a
        // move that began before the table shrank ends there.
        std::optional<EntrySlot> slot(std::uint64_t number) const {
            if (number >= table->slots()) return std::nullopt;
            return table->slot(number);
        }
    };
    std::vector<Table> tables_ GUARDED_BY(mutex_);  // those that may refer to pages of the pool
    // There have been several, one was resized, or spill memory was added.
    bool was_shared_ GUARDED_BY(mutex_) = false;
    // A copy of a shared page, in progress. It is old once the page could be written in place.
    struct SharedCopy : boost::intrusive::list_base_hook<> {
        PageIndex page = 0;
        bool is_old = false;
    };
    boost::intrusive::list<SharedCopy> shared_copies_ GUARDED_BY(mutex_);
    std::uint32_t frozen_ GUARDED_BY(mutex_) = 0;
    PageRequests thaw_waiters_ GUARDED_BY(mutex_);
    bool quiesced_ GUARDED_BY(mutex_) = false;
    std::uint32_t releasing_ GUARDED_BY(mutex_) = 0;  // slabs that are being released
    std::uint32_t announced_ GUARDED_BY(mutex_) = 0;  // releases, see announce_releases()
    std::uint32_t moving_ GUARDED_BY(mutex_) = 0;     // pages
    PageRequests move_waiters_ GUARDED_BY(mutex_);
    bool provisioning_ GUARDED_BY(mutex_) = false;  // one thread at a time releases or maps slabs
    // Pages and slabs that other threads are about to make free.
    std::uint32_t pending_ GUARDED_BY(mutex_) = 0;
    Condition changed_;  // pending_ or provisioning_ has changed
    PageRequests requests_ GUARDED_BY(mutex_);
    Provisioner provisioner_;
};

// Holds the mutex of a pool. What a change causes is done after the mutex has been released.
class SCOPED_CAPABILITY PagePool::PoolLock {
 public:
    explicit PoolLock(PagePool& pool) ACQUIRE(pool.mutex_) : pool_(pool), lock_(pool.mutex_) {}
    ~PoolLock() RELEASE() {}
    PoolLock(const PoolLock&) = delete;
    PoolLock& operator=(const PoolLock&) = delete;

    // The analysis cannot follow a member function that releases the mutex of another object.
    void unlock_and_wake() RELEASE() NO_THREAD_SAFETY_ANALYSIS {
        const bool wakes = pool_.has_work();
        lock_.unlock();
        if (wakes) pool_.wake_provisioner();
    }
    void unlock_and_complete(PageRequests waiters) RELEASE() NO_THREAD_SAFETY_ANALYSIS {
        lock_.unlock();
        complete(waiters, Status::ok);
    }

 private:
    PagePool& pool_;
    Lock lock_;
};

// A pinned page, or a hole. Move-only; unpins the page when it is destroyed.
class PageRef {
 public:
    PageRef() = default;
    // Adopts a pin.
    PageRef(PagePool& pool, PageIndex page, Access access)
        : pool_(&pool), page_(page), access_(access) {}
    PageRef(PageRef&& other) noexcept
        : pool_(other.pool_), page_(other.page_), access_(other.access_) {
        other.pool_ = nullptr;
    }
    PageRef& operator=(PageRef&& other) noexcept {
        if (this != &other) {
            reset();
            pool_ = other.pool_;
            page_ = other.page_;
            access_ = other.access_;
            other.pool_ = nullptr;
        }
        return *this;
    }
    ~PageRef() { reset(); }
    void reset() {
        if (pool_ != nullptr) pool_->unpin(page_, access_);
        pool_ = nullptr;
    }

    // A second pin of the page.
    PageRef again() const {
        GPUNBD_ASSERT(pool_ != nullptr, "a hole is not pinned");
        pool_->pin(page_, access_);
        return {*pool_, page_, access_};
    }

    bool hole() const { return pool_ == nullptr; }
    Device& device() const { return pool_->device(); }
    const Slab& slab() const { return pool_->slabs().slab_of(page_); }
    // Null if the CPU cannot address the page.
    std::byte* cpu() const { return pool_->slabs().cpu_of(page_); }
    std::uint64_t address() const { return pool_->slabs().address_of(page_); }
    PageIndex index() const {
        GPUNBD_ASSERT(pool_ != nullptr, "a hole has no page");
        return page_;
    }

 private:
    friend class PagePool;

    PagePool* pool_ = nullptr;
    PageIndex page_ = 0;
    Access access_ = Access::read;
};

}  // namespace gpunbd::storage
