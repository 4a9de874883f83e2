#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/pages/free_pages.hpp"
#include "storage/pages/page_states.hpp"
#include "storage/pages/pool_config.hpp"
#include "storage/pages/pool_slabs.hpp"
#include "storage/pages/provisioner.hpp"

namespace gpunbd::storage {

// The slabs of one pool that PendingReleases counts. The caller holds the lock of the pool.
class AnnouncedReleases {
 public:
    explicit AnnouncedReleases(PendingReleases& pending) : pending_(pending) {}
    ~AnnouncedReleases() { set_announced(0); }
    AnnouncedReleases(const AnnouncedReleases&) = delete;
    AnnouncedReleases& operator=(const AnnouncedReleases&) = delete;

    // A slab is being released.
    void begin() { ++releasing_; }
    void end() {
        GPUNBD_ASSERT(releasing_ != 0, "a release ends once");
        --releasing_;
    }
    // So many slabs are going to be released, besides those that are being released.
    void announce(std::uint32_t slabs) { set_announced(releasing_ + slabs); }

 private:
    void set_announced(std::uint32_t slabs) {
        for (; announced_ < slabs; ++announced_) pending_.begin();
        for (; announced_ > slabs; --announced_) pending_.end();
    }

    PendingReleases& pending_;
    std::uint32_t releasing_ = 0;
    std::uint32_t announced_ = 0;
};

// What a page allocator makes a slab for.
struct NewSlab {
    bool fixed = false;     // it must not be revocable, and may be one more than the tables need
    bool is_ahead = false;  // of need, so lenders give no memory up for it
};

// The memory of a page pool: allocates slabs on the device, cuts them into pages, and gives out the
// free ones. A page is given out only while no entry refers to it and it is not pinned.
//
// A page that is in use becomes free in this order:
//
//   in use --- retire() ---> retired --- free_if_unpinned() ---> pending ---> free
//      \                                                          /
//       +------------------------- put_back() -------------------+
//
// These changes are made with the lock of the pool held, so a thread that needs a page finds each
// page in one of these states, and waits for pending ones. The lock also guards the entries of the
// pool: see page_entry.hpp. It is not held while the device is called.
class PageAllocator {
 public:
    // What the thread of the pool does for other parts of it.
    class Client {
     public:
        // Does what the request asks for. Blocks.
        virtual Status serve(PageRequest& request) = 0;
        // With the lock held: the next taken-over slab without a CPU address; null: there is none.
        virtual Slab* next_unmapped_slab() = 0;

     protected:
        virtual ~Client() = default;
    };

    // The client calls provisioner().stop() before it ends.
    PageAllocator(Device& device, const PoolConfig& config, Client& client);
    ~PageAllocator();
    PageAllocator(const PageAllocator&) = delete;
    PageAllocator& operator=(const PageAllocator&) = delete;

    Mutex& mutex() const RETURN_CAPABILITY(mutex_) { return mutex_; }
    class PoolLock;
    // Of slabs with pages that are pinned or taken.
    const PoolSlabs& slabs() const { return slabs_; }
    PageStates& pages() { return pages_; }
    const PageStates& pages() const { return pages_; }

    // The thread that calls the device.
    Provisioner& provisioner() { return provisioner_; }
    // The thread serves the request and completes it.
    void submit(PageRequest& request) EXCLUDES(mutex_);

    // Until resume(), only take() for zeroes or copies makes slabs, no slab is released, and no
    // release is announced. Waits for work in progress. Page requests wait.
    void quiesce() EXCLUDES(mutex_);
    void resume() EXCLUDES(mutex_);
    bool is_quiesced() const REQUIRES(mutex_) { return quiesced_; }

    // The tables can map so many pages more than before, or fewer: then slabs that none of them was
    // promised are released.
    void promise(std::int64_t pages) REQUIRES(mutex_);
    // From now on each slab has the same number of pages.
    void use_whole_slabs() REQUIRES(mutex_) { promise_.in_whole_slabs = true; }
    // This pool is that of one of the device's SlabLenders: it asks none of them.
    void lend() { lends_.store(true); }
    // While there is one, the device keeps the memory of pages that become free: others take them
    // now.
    class KeepFreed;
    // The slab directory of kept slabs is there from now on, so that further tables can share
    // it. It is kept already.
    void move_directory(const std::shared_ptr<const SharedDirectory>& target) EXCLUDES(mutex_);
    // Provision::full: allocates every slab now, unless `stop` is requested between two slabs.
    Status fill(const std::stop_token& stop = {}) EXCLUDES(mutex_);
    // Allocates one of the slabs that fill() would allocate, because it has been released since.
    Status add_missing_slab() EXCLUDES(mutex_);
    // In bytes, except for the number of slabs.
    struct Usage {
        std::uint64_t allocated = 0;
        std::uint64_t slabs = 0;
        std::uint64_t promised = 0;  // the most that the tables can map
        std::uint64_t missing = 0;   // what fill() would allocate; nothing while it may not
        std::uint64_t retired = 0;   // of pages that are not mapped any more and still pinned
    };
    Usage usage() const EXCLUDES(mutex_);

    // Why a page is taken: to be mapped with zeroes; to be filled by a copy; or to be filled by a
    // move or with new contents. The last one is not among the pages that the tables were promised:
    // call PageStates::end_filling() once it is.
    enum class Purpose : std::uint8_t { zeroes, copy, fill };
    // A page for this purpose that is ready now.
    std::optional<PageIndex> take_now(Purpose purpose) REQUIRES(mutex_);
    // Makes a slab if necessary. Blocks.
    Status take(PageIndex& page, Purpose purpose) EXCLUDES(mutex_);
    // For a move into a slab of `kind`, if given. Fixed slabs are made if necessary, also one more
    // than the tables need; revocable ones are not. Blocks.
    Status take_target(PageIndex& page, std::optional<SlabKind> kind) EXCLUDES(mutex_);
    // Returns a page that was taken for this purpose and never mapped.
    void put_back(PageIndex page, Purpose purpose = Purpose::zeroes) EXCLUDES(mutex_);
    // The page has no entry any more. `number`: see RetiredPages.
    void retire(PageIndex page, std::uint64_t number) REQUIRES(mutex_);
    // Frees the page, if it is retired and not pinned.
    void free_if_unpinned(PageIndex page) EXCLUDES(mutex_);

    // See PageStates::pin().
    void pin(PageIndex page, Access access) {
        GPUNBD_ASSERT(page < slabs_.page_numbers(),
                      "the numbers of a pool grow before its pages are used");
        pages_.pin(page, access);
    }
    void unpin(PageIndex page, Access access) {
        if (pages_.unpin(page, access)) free_if_unpinned(page);
    }

    // From now on no free page of the slab is used, and the slab is released once it is empty.
    // False: there is no such slab. stop_draining() reverses that, unless the slab is empty.
    bool drain(std::uint32_t slab) EXCLUDES(mutex_);
    bool is_draining(std::uint32_t slab) const EXCLUDES(mutex_);
    // How many are not being drained.
    std::uint32_t usable_slabs() const EXCLUDES(mutex_);
    void stop_draining(std::uint32_t slab) EXCLUDES(mutex_);
    // Nothing: there is no such slab.
    std::optional<SlabKind> kind_of(std::uint32_t slab) const EXCLUDES(mutex_);

 private:
    friend class PoolTakeOver;

    const PoolConfig& config() const { return slabs_.config(); }
    // Empty slabs that are not released, so that a page that comes and goes does not allocate each
    // time.
    std::uint32_t spare_slabs() const { return config().keeps_empty_slab ? 1 : 0; }
    void take_out(FreePages::Page page) REQUIRES(mutex_);
    bool take_free_page(FreePages::Page& page) REQUIRES(mutex_);
    bool take_free_page(FreePages::Page& page, SlabKind kind) REQUIRES(mutex_);
    // Whether the device may release the memory of a page that becomes free. Not if the pool is
    // quiesced: another process may use the page already.
    bool may_discard() const REQUIRES(mutex_) { return !quiesced_ && keeps_freed_.load() == 0; }
    void free(PageIndex page, bool discards) EXCLUDES(mutex_);
    void end_pending() REQUIRES(mutex_);
    // Updates PendingReleases. Must be called after each change of the slabs to be released.
    void announce_releases() REQUIRES(mutex_);
    std::uint32_t releasable_slabs() const REQUIRES(mutex_);
    std::uint32_t slab_to_release() const REQUIRES(mutex_);
    bool can_prepare() const REQUIRES(mutex_);
    // Whether the thread has slabs to release or can prepare pages.
    bool has_work() const REQUIRES(mutex_);
    std::uint32_t pages_of_next_slab(bool fixed) const REQUIRES(mutex_);
    std::uint32_t number_of_next_slab() REQUIRES(mutex_);
    Status allocate(std::uint32_t number, const SlabRequest& request, bool is_ahead, Slab& slab)
        EXCLUDES(mutex_);
    bool may_wait_for_others() const EXCLUDES(mutex_);
    // Only between these two, a thread releases or maps slabs. begin_provisioning() waits for the
    // end of another thread's work, and quiesce() for all of it.
    void begin_provisioning() REQUIRES(mutex_);
    void end_provisioning() REQUIRES(mutex_);
    // The work of the thread, and the part of it that is done without a thread.
    void provision() EXCLUDES(mutex_);
    void release_empty_slabs() EXCLUDES(mutex_);
    void wake() EXCLUDES(mutex_);

    // These release the lock while they call the device.
    void add_free(FreePages::Page page) REQUIRES(mutex_);
    Status add_slab(NewSlab kind = {}) REQUIRES(mutex_);
    Status add_slab_of(std::uint32_t pages, NewSlab kind) REQUIRES(mutex_);
    void release_slab(std::uint32_t number) REQUIRES(mutex_);
    void release_surplus() REQUIRES(mutex_);
    Status prepare() REQUIRES(mutex_);
    Status clear_a_page() REQUIRES(mutex_);
    bool map_taken_slab() REQUIRES(mutex_);
    void serve_requests() REQUIRES(mutex_);

    Client& client_;
    const bool works_ahead_;  // a thread allocates, clears and releases ahead of need
    Atomic<bool> lends_{false};
    Atomic<std::uint32_t> keeps_freed_{0};  // objects of KeepFreed
    PoolSlabs slabs_;
    PageStates pages_;

    mutable Mutex mutex_;  // slabs_ and the retired pages change with the lock held, too
    Condition changed_;    // pending_ or provisioning_ has changed
    FreePages free_ GUARDED_BY(mutex_);
    struct Promise {
        std::uint64_t pages;  // the most that the tables can map
        // There have been several tables, one was resized, or spill memory was added. Until then,
        // the last slab may be shorter.
        bool in_whole_slabs;
    };
    Promise promise_ GUARDED_BY(mutex_);
    bool quiesced_ GUARDED_BY(mutex_) = false;
    bool provisioning_ GUARDED_BY(mutex_) = false;  // one thread at a time releases or maps slabs
    // Pages and slabs that other threads are about to make free.
    std::uint32_t pending_ GUARDED_BY(mutex_) = 0;
    AnnouncedReleases releases_ GUARDED_BY(mutex_);
    PageRequests requests_ GUARDED_BY(mutex_);
    Provisioner provisioner_;
};

class PageAllocator::KeepFreed {
 public:
    explicit KeepFreed(PageAllocator& memory) : memory_(memory) {
        memory.keeps_freed_.fetch_add(1);
    }
    ~KeepFreed() { memory_.keeps_freed_.fetch_sub(1); }
    KeepFreed(const KeepFreed&) = delete;
    KeepFreed& operator=(const KeepFreed&) = delete;

 private:
    PageAllocator& memory_;
};

// Holds the lock of a pool. What a change causes is done after the lock has been released.
class SCOPED_CAPABILITY PageAllocator::PoolLock {
 public:
    explicit PoolLock(PageAllocator& memory) ACQUIRE(memory.mutex())
        : memory_(memory), lock_(memory.mutex_) {}
    ~PoolLock() RELEASE() {}
    PoolLock(const PoolLock&) = delete;
    PoolLock& operator=(const PoolLock&) = delete;

    // The analysis cannot follow a member function that releases the mutex of another object.
    void unlock_and_wake() RELEASE() NO_THREAD_SAFETY_ANALYSIS {
        const bool wakes = memory_.has_work();
        lock_.unlock();
        if (wakes) memory_.wake();
    }
    void unlock_and_complete(PageRequests waiters) RELEASE() NO_THREAD_SAFETY_ANALYSIS {
        lock_.unlock();
        complete(waiters, Status::ok);
    }

 private:
    PageAllocator& memory_;
    Lock lock_;
};

}  // namespace gpunbd::storage
