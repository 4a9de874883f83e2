// The pages that one export has on one device: slabs cut into pages, reference counts, and which
// pages are free. A page is never handed to anyone while somebody still holds it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "storage/device.hpp"
#include "storage/provisioner.hpp"

namespace gpunbd::storage {

using PageIndex = std::uint32_t;  // within one pool

class PagePool {
 public:
    // `pages`: how many the export can map here at once.
    PagePool(Device& device, std::uint64_t page_size, std::uint64_t pages, Provision provision);
    ~PagePool();
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    // Provision::full: allocates every slab now.
    Status fill();

    // A page that reads as zeroes, with one reference, the caller's. Allocates or clears only where
    // the provisioner has not done so ahead, or there is none.
    Status take(PageIndex& page);

    // Adds a reference unless the page has none left: then it is nobody's, and false.
    bool pin(PageIndex page) {
        std::atomic<std::uint32_t>& count = references_[page];
        std::uint32_t seen = count.load(std::memory_order_relaxed);
        while (seen != 0) {
            if (count.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }
    // Drops a reference; with the last one the page is free for reuse.
    void unpin(PageIndex page) {
        if (references_[page].fetch_sub(1, std::memory_order_acq_rel) == 1) free(page);
    }

    // Only for pinned pages.
    const Slab& slab(PageIndex page) const { return slabs_[page >> slab_shift_]; }
    std::uint64_t offset_in_slab(PageIndex page) const { return (page & slab_mask_) * page_size_; }

    Device& device() const { return device_; }
    std::uint64_t allocated_bytes() const;

 private:
    static constexpr std::uint64_t preferred_slab = 64 << 20;  // bytes: fits fragmented memory

    // One bit per page or slab.
    using Bitmap = std::vector<std::uint64_t>;

    void free(PageIndex page);
    // With the lock held; `lock` is let go while the device is asked.
    Status add_slab(std::unique_lock<std::mutex>& lock);
    Status clear_a_page(std::unique_lock<std::mutex>& lock);
    bool take_free_page(PageIndex& page, bool& is_clear);
    void take_out(PageIndex page, bool is_clear);
    void put_back(PageIndex page, bool is_clear, Slab& dropped);
    void drop_if_empty(std::uint32_t slab_number, Slab& dropped);
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
    std::unique_ptr<std::atomic<std::uint32_t>[]> references_;

    mutable std::mutex mutex_;  // guards what follows and changes of slabs_
    std::vector<std::uint32_t> pages_in_slab_;
    std::vector<std::uint32_t> free_in_slab_;
    std::vector<std::uint32_t> clear_in_slab_;
    Bitmap free_;       // by page
    Bitmap clear_;      // by page: a free page that reads as zeroes
    Bitmap has_free_;   // by slab
    Bitmap has_clear_;  // by slab
    std::uint64_t allocated_pages_ = 0;
    std::uint64_t free_pages_ = 0;
    std::uint64_t clear_pages_ = 0;
    std::uint32_t empty_slabs_ = 0;
    bool preparing_ = false;  // the provisioner holds a page, or is about to bring a slab
    std::condition_variable prepared_;
    std::unique_ptr<Provisioner> provisioner_;  // null: the device is quick enough without
};

// A pinned page, or a hole. Move-only; unpins when it goes.
class PageRef {
 public:
    PageRef() = default;
    PageRef(PagePool& pool, PageIndex page) : pool_(&pool), page_(page) {}  // adopts a reference
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
