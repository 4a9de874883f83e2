#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/atomic.hpp"
#include "storage/base/mutex.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/devices/slab_copy.hpp"
#include "storage/pages/page_allocator.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/pool_config.hpp"
#include "storage/pages/pool_tables.hpp"
#include "storage/pages/pool_take_over.hpp"

namespace gpunbd::storage {

// A pinned page, or a hole.
// Move-only; unpins the page when it is destroyed.
class PageRef {
 public:
    PageRef() = default;
    // Takes over a pin.
    PageRef(PageAllocator& owner, PageIndex page, Access access)
        : owner_(&owner), page_(page), access_(access) {
        if (access != Access::write) claims_ = owner.pages().claims(page);
    }
    PageRef(PageRef&& other) noexcept
        : owner_(other.owner_), page_(other.page_), claims_(other.claims_), access_(other.access_) {
        other.owner_ = nullptr;
    }
    PageRef& operator=(PageRef&& other) noexcept {
        if (this != &other) {
            reset();
            owner_ = other.owner_;
            page_ = other.page_;
            claims_ = other.claims_;
            access_ = other.access_;
            other.owner_ = nullptr;
        }
        return *this;
    }
    ~PageRef() { reset(); }
    void reset() {
        if (owner_ != nullptr) owner_->unpin(page_, access_);
        owner_ = nullptr;
    }

    // A second pin of the page.
    PageRef again() const {
        owner().pin(page_, access_);
        PageRef out(owner(), page_, access_);
        out.claims_ = claims_;
        return out;
    }

    bool hole() const { return owner_ == nullptr; }
    // The pool of which it is a page.
    PageAllocator& owner() const {
        GPUNBD_ASSERT(owner_ != nullptr, "a hole has no page");
        return *owner_;
    }
    Device& device() const { return owner().slabs().device(); }
    const Slab& slab() const { return owner().slabs().slab_of(page_); }
    SlabPosition position() const {
        return {.device = device(),
                .slab = slab(),
                .offset = owner().slabs().numbers().offset_in_slab(page_)};
    }
    // Null if the CPU cannot address the page.
    std::byte* cpu() const { return owner().slabs().cpu_of(page_); }
    std::uint64_t address() const { return owner().slabs().address_of(page_); }
    PageIndex index() const {
        GPUNBD_ASSERT(owner_ != nullptr, "a hole has no page");
        return page_;
    }
    Access access() const { return access_; }
    // See PageStates.
    Parts missing() const { return owner().pages().missing(page_); }
    bool lacks(Parts parts) const { return (missing() & parts) != 0; }
    void add_parts(Parts parts) {
        GPUNBD_ASSERT(access_ == Access::write, "a page is filled by a thread that pins it so");
        owner().pages().add_parts(page_, parts);
    }
    // False: the volume in which the page was found for reading may have lost it meanwhile, and
    // another volume may have written to it. What was read has to be read again.
    bool is_intact() const {
        GPUNBD_ASSERT(access_ != Access::write, "a page that is read may have been lost");
        return owner().pages().claims(page_) == claims_;
    }

 private:
    PageAllocator* owner_ = nullptr;
    PageIndex page_ = 0;
    std::uint32_t claims_ = 0;  // when it was pinned
    Access access_ = Access::read;
};

// The pages of one export, or of several exports that share pages, on one device. A page pool
// changes the entries of the page tables: it maps, unmaps, moves, shares and replaces pages. Its
// parts allocate the pages (memory()), know the tables (tables()) and take over the pages of an
// earlier process (take_over()).
//
// The states of an entry, and the lock that a change needs: see page_entry.hpp. At any time, a page
// has as many entries as PageStates counts, all of the same page number, and one of them at most is
// writable.
class PagePool {
 public:
    PagePool(Device& device, const PoolConfig& config);
    ~PagePool();
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    Device& device() const { return memory_.slabs().device(); }
    PageAllocator& memory() { return memory_; }
    const PageAllocator& memory() const { return memory_; }
    PoolTables& tables() { return tables_; }
    const PoolTables& tables() const { return tables_; }
    PoolTakeOver& take_over() { return take_over_; }
    const PoolTakeOver& take_over() const { return take_over_; }
    // Until PageAllocator::resume(), the slabs stay, except for pages that clients need now, and no
    // page moves. Waits for work in progress.
    void quiesce();

    // The pools to which pages are mapped if this one has no memory, in order. They outlive this
    // pool. One thread at a time may call it, while other threads use the pool and earlier results
    // of spills(). Throws std::bad_alloc.
    using Spills = std::vector<PagePool*>;
    void set_spills(Spills spills);
    std::span<PagePool* const> spills() const {
        const Spills* const current = spills_.load(std::memory_order_acquire);
        return current == nullptr ? std::span<PagePool* const>() : *current;
    }

    // Maps a page that reads as zeroes to page number `number` of the volume, whose entry is
    // `slot`, unless it is mapped already. `out` pins it for writing; it is a hole if the entry has
    // to be looked at again. Returns false if the device would have to be called.
    bool map_at_once(std::uint64_t number, EntrySlot slot, PageRef& out);
    // The same, but calls the device. Blocks.
    Status map(std::uint64_t number, EntrySlot slot, PageRef& out);
    // The entry becomes a hole. Its page is reused once it is neither mapped elsewhere nor pinned.
    // While the pool is frozen, submits `request`, which is completed when that has ended; null:
    // blocks until then.
    enum class Replaced : std::uint8_t { done, moved_to_other_pool, later };
    Replaced unmap(std::uint64_t number, EntrySlot slot, PageRequest* request = nullptr);

    // Moving a page to another pool. Between begin_move() and the end of the
    // move the page is read but not written: writers wait. Any thread may move pages, but one
    // thread at a time moves the page of a given number.
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

    // Sharing pages with the table of a clone, in page_sharing.cpp. Until thaw(), no hole is
    // mapped, and no entry of a page becomes a hole or refers to a copy.
    void freeze();
    void thaw();
    // Page numbers, with room for all of a table.
    struct InUse {
        // Clients that want to write one of these wait until settle() or copy_written().
        std::vector<std::uint64_t> written;
        std::vector<std::uint64_t> sent;  // clients may be sent the pages themselves
    };
    // The pages of `from` are in `to` too, from number `begin` on. Returns the first number that is
    // not done: `end`, or one with a page in another pool, or after some pages. Appends the numbers
    // of pages that clients use.
    std::uint64_t share(const PageTable& from, const PageTable& to, std::uint64_t begin,
                        std::uint64_t end, InUse& in_use);
    // The page of this number is shared from now on. False: it is still being written.
    bool settle(const PageTable& from, const PageTable& to, std::uint64_t number);
    // `to` gets a copy of the page, which may have parts of writes in progress. `home`: the pool of
    // the device on which the layout places the page. Blocks. After an error, call
    // cancel_sharing().
    Status copy_written(const PageTable& from, const PageTable& to, std::uint64_t number,
                        PagePool& home);
    void cancel_sharing(const PageTable& from, const PageTable& to, std::uint64_t number);
    // Whether the page of this entry of a new clone may still be sent to clients of its source. The
    // page must not be written then, although no other table may have it any more.
    bool may_be_sent(EntrySlot slot) const;
    // That page is replaced by a copy, unless it moves to another pool meanwhile. `home`: see
    // copy_written(). Blocks.
    Status copy_sent(EntrySlot slot, PagePool& home);

    // Writing to a shared page, in page_copies.cpp. Makes a page writable that no other table has,
    // and pins it for writing; a hole if the entry has to be looked at again. False: the page has
    // to be copied.
    bool claim(EntrySlot slot, PageRef& out);
    // The entry of a number that the layout places here gets a copy of its page, if the page is
    // shared. The page may be in spill memory. Blocks.
    Status copy_shared(EntrySlot slot);
    // Whether a page that is in spill memory may have to be copied.
    bool shares_spilled_pages() const;
    // Prepares such copies. Blocks. Throws what Device::open_channel() throws.
    void open_copy_channels();
    // Closes the channels, unless they were used since the last call.
    void close_idle_copy_channels() { copier_.close_if_idle(); }
    // Takes a free page with any contents, which is to replace a shared one, and pins it for
    // writing. Does not call the device. A hole: there is none, or this pool has to copy. Call
    // replace() or give_up() next, once.
    PageRef take_replacement();
    // The same for a page that is to be mapped to a hole. May call the device. Blocks.
    Status take_page(PageRef& out);
    // The entry of a page of this pool, or of a hole, refers to `page` from now on, which has the
    // new contents. `later`: nothing has changed, since a clone is being made.
    Replaced replace(EntrySlot slot, const PageRef& page);
    // The same for a hole of a volume that has no clones. False: it is none any more. `missing`:
    // see PageStates.
    bool fill_hole(EntrySlot slot, const PageRef& page, Parts missing);
    // The page is free once it is not pinned any more.
    static void give_up(PageRef page);

 private:
    struct TakenPage {
        PageAllocator* owner = nullptr;
        PageIndex page = 0;
    };

    // An object of its own: the thread of the allocator calls it until the destructor has stopped
    // it.
    class Service final : public PageAllocator::Client {
     public:
        explicit Service(PagePool& pool) : pool_(pool) {}
        Status serve(PageRequest& request) override;
        Slab* next_unmapped_slab() override { return pool_.take_over_.next_unmapped_slab(); }

     private:
        PagePool& pool_;
    };

    static PageEntry entry_of(const PageAllocator& owner, PageIndex page) {
        return PageEntry::mapped(owner.slabs().config().device, page);
    }
    static PageRef pinned(PageAllocator& owner, PageIndex page, Access access) {
        owner.pin(page, access);
        return {owner, page, access};
    }
    // A hole gets the page, which `out` pins for writing. The caller holds the lock that guards the
    // entry, maybe that of another pool: see page_entry.hpp.
    static void publish(EntrySlot slot, PageAllocator& owner, PageIndex page, PageRef& out);
    // Takes a page for a number that the layout places here: a page of this pool, or of the first
    // spill memory that has one. Passes over devices that have failed.
    Status take_in_order(TakenPage& out, PageAllocator::Purpose purpose) EXCLUDES(memory_.mutex());
    bool pin_retired(std::uint64_t number, EntrySlot slot, PageIndex& page)
        EXCLUDES(memory_.mutex());
    Status map_retired(EntrySlot slot, PageIndex page, PageRef& out) EXCLUDES(memory_.mutex());
    bool map_taken(std::uint64_t number, EntrySlot slot, const TakenPage& taken, PageRef& out)
        EXCLUDES(memory_.mutex());
    bool is_here(PageEntry entry) const { return entry.device() == index_; }
    bool is_retired_from(PageEntry entry, std::uint64_t number) const REQUIRES(memory_.mutex());
    bool has_page(EntrySlot slot, std::uint64_t number) const REQUIRES(memory_.mutex());
    // One entry of the page is gone. `number`: see RetiredPages.
    void drop(PageIndex page, std::uint64_t number) REQUIRES(memory_.mutex());
    void wait_for_thaw() REQUIRES(memory_.mutex());

    bool store_moving(std::uint64_t number, PageIndex page, PageEntry entry)
        REQUIRES(memory_.mutex());
    PageEntry entry_at_rest(PageIndex page) REQUIRES(memory_.mutex());
    bool moves_from_here(PageEntry entry) const;
    // These return the requests that have waited for the end: see PoolLock::unlock_and_complete().
    PageRequests end_move() REQUIRES(memory_.mutex());
    PageRequests end_sharing(EntrySlot slot, PageIndex page) REQUIRES(memory_.mutex());

    // Of a page of this pool in the state `shared`. `home`: see copy_written().
    enum class Copied : std::uint8_t { any, of_several_tables };
    Status copy(EntrySlot slot, PagePool& home, Copied which) EXCLUDES(memory_.mutex());
    Status make_copy(PageIndex page, PagePool& home, TakenPage& out) EXCLUDES(memory_.mutex());
    Status copy_contents(PageIndex page, const TakenPage& to, SlabCopier& copier) noexcept
        EXCLUDES(memory_.mutex());
    // The entry refers to the copy, instead of to a page of this pool.
    void publish_copy(EntrySlot slot, PageIndex page, const TakenPage& copy)
        REQUIRES(memory_.mutex());

    const std::uint32_t index_;  // of the device in the volume
    Service service_{*this};
    PageAllocator memory_;
    PoolTables tables_;
    PoolTakeOver take_over_;
    SlabCopier copier_;  // for pages of this pool's numbers that are in different devices
    // All that other threads may use.
    std::vector<std::unique_ptr<const Spills>> spill_lists_ GUARDED_BY(memory_.mutex());
    Atomic<const Spills*> spills_{nullptr};  // the last one
    Mutex mapping_mutex_;  // serializes map(): one page at a time waits for the device
    std::uint32_t frozen_ GUARDED_BY(memory_.mutex()) = 0;
    PageRequests thaw_waiters_ GUARDED_BY(memory_.mutex());
    std::uint32_t moving_ GUARDED_BY(memory_.mutex()) = 0;  // pages
    PageRequests move_waiters_ GUARDED_BY(memory_.mutex());
    Condition changed_;  // frozen_ or moving_
};

}  // namespace gpunbd::storage
