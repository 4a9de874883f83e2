// The pages that one export has on one device: slabs cut into pages, who holds them, and which are
// free. A page is never handed to anyone while somebody still holds it.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "storage/devices/device.hpp"
#include "storage/pages/page_request.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/pin_counts.hpp"
#include "storage/pages/provisioner.hpp"
#include "storage/pages/slab_keeper.hpp"

namespace gpunbd::storage {

class PageRef;

class PagePool {
 public:
    // What it is of a volume, and on which of its devices.
    struct Place {
        std::uint32_t device = 0;     // its number in the volume
        std::uint64_t page_size = 0;  // bytes, a power of two
        std::uint64_t pages = 0;      // that the volume can map here at once; there are never more
        Provision provision = Provision::thin;
        std::uint32_t slab_pages = 1;  // a power of two; the last slab may be shorter
        SlabDirectory slabs;           // where it writes down what it has: all of `pages` fit
        SlabKeeper* keeper = nullptr;  // null: its slabs end with it
    };
    // What is best for so many pages. `kept`: somebody has a descriptor for each slab, so that
    // large volumes have larger ones.
    static std::uint32_t slab_pages_for(std::uint64_t pages, std::uint64_t page_size, bool kept);
    // How many slabs hold so many pages; at least one.
    static std::uint32_t slabs_for(std::uint64_t pages, std::uint32_t slab_pages) {
        return static_cast<std::uint32_t>(
            std::max<std::uint64_t>((pages + slab_pages - 1) / slab_pages, 1));
    }

    PagePool(Device& device, const Place& place);
    ~PagePool();
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    // Provision::full: allocates every slab now.
    // `stop`: ends between two slabs.
    Status fill(const std::stop_token& stop = {});
    // The thread that asks the device is there from now on. False: the system refuses one.
    bool start_provisioner() noexcept { return provisioner_.begin(); }
    // The slabs that the directory knows, made by another process: `descriptors` by their numbers,
    // -1 where there is none. `is_mapped` tells for each page whether an entry has it. Empty: all
    // are there, and the pool uses their descriptors; else why not, in one phrase. Either
    // own_adopted() or leave() is next.
    std::string adopt(const std::vector<int>& descriptors, const std::vector<bool>& is_mapped);
    // Nobody keeps what the directory does not know.
    void forget_others(const std::vector<int>& descriptors);
    // The descriptors that it uses are its own from now on, and -1 there; what is not mapped is
    // free.
    void own_adopted(std::vector<int>& descriptors, const std::vector<bool>& is_mapped);
    // Has adopting put off nothing?
    bool is_adopted() const;
    // What it has put off is done from now on, behind those who use the pool: slabs come to have
    // addresses for the CPU.
    void finish_adoption() noexcept;
    // Gives up all slabs: those adopted are left as they were, those made are kept by nobody. Then
    // the pool is of no use.
    void leave(const std::vector<int>& adopted);
    // Neither makes nor gives back anything ahead of need, until go_on(). Waits for what is under
    // way. What is asked for meanwhile waits.
    void rest();
    void go_on();
    // What others need to take it over: copies of the slabs' descriptors, by their numbers.
    std::vector<std::pair<std::uint32_t, int>> copy_descriptors() const;
    std::size_t pages_with_numbers() const { return std::size_t{slab_count_} << slab_shift_; }

    // The volume's page `number`, whose entry is at `slot`, gets a page that reads as zeroes if it
    // has none; `out` holds it then. At once, or not at all: false, where the device would have to
    // be asked.
    bool map_at_once(std::uint64_t number, EntrySlot slot, PageRef& out);
    // The same, and asks the device. Blocks.
    Status map(std::uint64_t number, EntrySlot slot, PageRef& out);
    // Has the provisioner do it, and answers the request then.
    void ask(PageRequest& request);
    // It becomes a hole. Its page is free for reuse once nobody holds it.
    void unmap(std::uint64_t number, EntrySlot slot);

    // A page that reads as zeroes, the caller's. Blocks.
    Status take(PageIndex& page);

    // Holds a page that the caller sees to be mapped still, after this returns. If it is not, it
    // may be anybody's by now: then the pin holds nothing and is to be taken back. Either the
    // caller sees that the page is not mapped, or who unmaps it sees the pin; either who unpins
    // sees that it is retired, or who retires it sees no pin left. That holds because on each side
    // a store comes before a load, in an order that is the same for all threads.
    void pin(PageIndex page) { pins_.add(page); }
    void unpin(PageIndex page) {
        pins_.remove(page);
        if (retired_[page].load()) free_if_unpinned(page);
    }

    // Only for pinned pages.
    const Slab& slab(PageIndex page) const { return slabs_[page >> slab_shift_]; }
    std::uint64_t offset_in_slab(PageIndex page) const { return (page & slab_mask_) * page_size_; }

    Device& device() const { return device_; }
    std::uint64_t mapped_bytes() const {
        return mapped_pages_.load(std::memory_order_relaxed) * page_size_;
    }
    std::uint64_t allocated_bytes() const;
    std::uint64_t allocated_slabs() const;
    // Not mapped any more, and still held.
    std::uint64_t retired_bytes() const;

 private:
    // One bit per page or slab.
    using Bitmap = std::vector<std::uint64_t>;

    void free_if_unpinned(PageIndex page);
    // After ++coming_.
    void free(PageIndex page);
    Status clear(PageIndex page);
    Status allocate(std::uint32_t slab_number, std::uint64_t bytes, Slab& slab);
    bool may_wait_for_others() const;
    void came();
    // With the lock held.
    void publish(EntrySlot slot, PageIndex page, PageRef& out);
    bool is_its_own(PageEntry entry, std::uint64_t number) const;
    bool has_a_page(EntrySlot slot, std::uint64_t number) const;
    // Without it.
    bool pin_its_own(std::uint64_t number, EntrySlot slot, PageIndex& page);
    Status map_its_own(EntrySlot slot, PageIndex page, PageRef& out);
    bool map_taken(std::uint64_t number, EntrySlot slot, PageIndex page, PageRef& out);
    // These let `lock` go while the device is asked.
    Status add_slab(std::unique_lock<std::mutex>& lock);
    Status clear_a_page(std::unique_lock<std::mutex>& lock);
    // After ++coming_.
    void put_back(PageIndex page, bool is_clear, std::unique_lock<std::mutex>& lock);
    std::string adopt_slab(std::uint32_t slab_number, SlabEntry entry, int descriptor);
    void free_adopted(const std::vector<bool>& is_mapped);
    void release_slab(std::uint32_t slab_number, std::unique_lock<std::mutex>& lock);
    void release_empty_slab(std::unique_lock<std::mutex>& lock);
    bool address_an_adopted_slab(std::unique_lock<std::mutex>& lock);
    Status prepare(std::unique_lock<std::mutex>& lock);
    void answer_requests(std::unique_lock<std::mutex>& lock);
    // With the lock held, and kept.
    bool take_free_page(PageIndex& page, bool& is_clear);
    void take_out(PageIndex page, bool is_clear);
    bool releases_later() const;
    bool has_slab_to_release() const;
    bool can_prepare() const;
    void wake_for_work(std::unique_lock<std::mutex>& lock);
    // The provisioner's.
    void provision();

    Device& device_;
    const std::uint32_t number_;  // of the device in the volume
    const std::uint64_t page_size_;
    const std::uint64_t pages_;  // how many the export can map
    const Provision provision_;
    const SlabDirectory directory_;
    SlabKeeper* const keeper_;
    // Are allocating, clearing and releasing done ahead, and behind, of those who need it?
    const bool ahead_;
    std::uint32_t slab_shift_ = 0;  // log2 of the pages in a slab
    PageIndex slab_mask_ = 0;
    std::unique_ptr<Slab[]> slabs_;
    std::uint32_t slab_count_ = 0;  // the length of slabs_, not of what is allocated
    PinCounts pins_;
    std::unique_ptr<std::atomic<bool>[]> retired_;  // nobody's, but perhaps held
    std::atomic<std::uint64_t> mapped_pages_{0};
    std::mutex asking_;  // one after the other maps what the device has to be asked for

    mutable std::mutex mutex_;  // guards what follows and changes of slabs_; no device is asked
                                // while it is held
    std::vector<std::uint32_t> pages_in_slab_;  // 0: this number is free
    std::vector<std::uint32_t> free_in_slab_;
    std::vector<std::uint32_t> clear_in_slab_;
    Bitmap free_;                              // by page
    Bitmap clear_;                             // by page: a free page that reads as zeroes
    Bitmap has_free_;                          // by slab
    Bitmap has_clear_;                         // by slab
    std::vector<std::uint64_t> retired_from_;  // by page: the number that it had
    std::uint64_t retired_pages_ = 0;
    std::uint64_t allocated_pages_ = 0;  // also those that the device is being asked for
    std::uint64_t free_pages_ = 0;
    std::uint64_t clear_pages_ = 0;
    std::uint32_t empty_slabs_ = 0;
    // The numbers of those slabs which the CPU may be able to address, or may not.
    std::vector<std::uint32_t> unaddressed_;
    bool addresses_adopted_ = false;
    bool resting_ = false;
    bool providing_ = false;    // the provisioner is at work
    std::uint32_t coming_ = 0;  // pages and slabs that somebody is about to make free
    std::condition_variable came_;
    PageRequests requests_;
    Provisioner provisioner_;
};

// A pinned page, or a hole. Move-only; unpins when it goes.
class PageRef {
 public:
    PageRef() = default;
    PageRef(PagePool& pool, PageIndex page) : pool_(&pool), page_(page) {}  // adopts a pin
    PageRef(PageRef&& other) noexcept : pool_(other.pool_), page_(other.page_) {
        other.pool_ = nullptr;
    }
    PageRef& operator=(PageRef&& other) noexcept {
        if (this != &other) {
            reset();
            pool_ = other.pool_;
            page_ = other.page_;
            other.pool_ = nullptr;
        }
        return *this;
    }
    ~PageRef() { reset(); }
    void reset() {
        if (pool_ != nullptr) pool_->unpin(page_);
        pool_ = nullptr;
    }

    bool hole() const { return pool_ == nullptr; }
    Device& device() const { return pool_->device(); }
    const Slab& slab() const { return pool_->slab(page_); }
    // Null where the CPU cannot address the page.
    std::byte* cpu() const {
        std::byte* base = slab().cpu;
        return base == nullptr ? nullptr : base + pool_->offset_in_slab(page_);
    }
    std::uint64_t address() const { return slab().address + pool_->offset_in_slab(page_); }

 private:
    PagePool* pool_ = nullptr;
    PageIndex page_ = 0;
};

}  // namespace gpunbd::storage
