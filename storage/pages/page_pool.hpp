// The pages that one export has on one device: slabs cut into pages, who holds them, and which are
// free. A page is never handed to anyone while somebody still holds it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "storage/devices/device.hpp"
#include "storage/pages/pin_counts.hpp"
#include "storage/pages/provisioner.hpp"

namespace gpunbd::storage {

class PagePool {
 public:
    // `pages`: how many the export can map here at once. There are never more, held or not.
    PagePool(Device& device, std::uint64_t page_size, std::uint64_t pages, Provision provision);
    ~PagePool();
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    // Provision::full: allocates every slab now.
    // `stop`: ends between two slabs.
    Status fill(const std::stop_token& stop = {});

    // A page that reads as zeroes, the caller's to map. Allocates or clears only where the
    // provisioner has not done so ahead, or there is none.
    Status take(PageIndex& page);
    // `unmap` takes the volume's page `number` out of the table and returns which of ours it was,
    // or none. It is free for reuse once nobody holds it.
    template <typename Unmap>
    void retire(std::uint64_t number, Unmap unmap) {
        PageIndex page = 0;
        {
            // So that no page is ever neither mapped nor retired nor free: take() counts on it.
            const std::lock_guard lock(mutex_);
            const std::optional<PageIndex> unmapped = unmap();
            if (!unmapped) return;
            page = *unmapped;
            retired_from_[page] = number;
            retired_[page].store(true);
            ++retired_pages_;
        }
        free_if_unpinned(page);
    }
    // The page that was retired last from this number, if it is held still: cleared, and the
    // caller's to map there again. Those who hold it see that number's contents change, as by any
    // write. To be asked before take(): so a number never has more than one page, and who does not
    // let go of pages takes none from others. none: it is free by now.
    std::optional<Status> take_back(PageIndex page, std::uint64_t number);

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
    std::uint64_t allocated_bytes() const;
    // Not mapped any more, and still held.
    std::uint64_t retired_bytes() const;

 private:
    static constexpr std::uint64_t preferred_slab = 64 << 20;  // bytes: fits fragmented memory

    // One bit per page or slab.
    using Bitmap = std::vector<std::uint64_t>;

    void free_if_unpinned(PageIndex page);
    // After ++coming_.
    void free(PageIndex page);
    Status clear(PageIndex page);
    Status allocate(std::uint64_t bytes, Slab& slab);
    void came();
    // With the lock held; `lock` is let go while the device is asked.
    Status add_slab(std::unique_lock<std::mutex>& lock);
    Status clear_a_page(std::unique_lock<std::mutex>& lock);
    // After ++coming_.
    void put_back(PageIndex page, bool is_clear, std::unique_lock<std::mutex>& lock);
    bool take_free_page(PageIndex& page, bool& is_clear);
    void take_out(PageIndex page, bool is_clear);
    Slab take_out_slab(std::uint32_t slab_number);
    // The provisioner's: makes take() find clear pages.
    void prepare();
    bool can_prepare() const;

    Device& device_;
    const std::uint64_t page_size_;
    const std::uint64_t pages_;  // how many the export can map
    const Provision provision_;
    std::uint32_t slab_shift_ = 0;  // log2 of the pages in a slab
    PageIndex slab_mask_ = 0;
    std::unique_ptr<Slab[]> slabs_;
    std::uint32_t slab_count_ = 0;  // the length of slabs_, not of what is allocated
    PinCounts pins_;
    std::unique_ptr<std::atomic<bool>[]> retired_;  // nobody's, but perhaps held

    mutable std::mutex mutex_;  // guards what follows and changes of slabs_
    std::vector<std::uint32_t> pages_in_slab_;
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
    std::uint32_t coming_ = 0;  // pages and slabs that somebody is about to make free
    std::condition_variable came_;
    std::unique_ptr<Provisioner> provisioner_;  // null: the device is quick enough without
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
