// What a pool knows of each of its pages besides whether it is free: how many entries refer to it,
// how often it is pinned, and whether it has lost its last entry while it may still be pinned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/assertions/assert.hpp"
#include "storage/base/atomic.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/pages/growing_array.hpp"
#include "storage/pages/pin_counts.hpp"
#include "storage/pages/retired_pages.hpp"

namespace gpunbd::storage {

class PageStates {
 public:
    PageStates(std::size_t pages, std::uint64_t max_bytes_of_pins)
        : pins_(pages, max_bytes_of_pins), retired_(pages), sharers_(pages) {}

    // The caller holds the lock of the pool. Throws std::bad_alloc.
    void grow(std::size_t pages) {
        pins_.grow(pages);
        retired_.grow(pages);
        sharers_.grow(pages);
    }

    // Any thread calls the following six. A pin holds a page if the caller still sees it mapped
    // after pin() has returned, and writable if it is a pin for writing. Otherwise the page may be
    // in use elsewhere, and the caller has to unpin it. Either the pinning thread sees that the
    // page is unmapped or moving, or the thread that changes this sees the pin; either the
    // unpinning thread sees that the page is retired, or the retiring thread sees that no pin is
    // left. This holds since each side stores before it loads, and these operations are
    // sequentially consistent.
    void pin(PageIndex page, Access access) { pins_.add(page, access); }
    // True: the page is retired, and this may have been the last pin.
    bool unpin(PageIndex page, Access access) {
        pins_.remove(page, access);
        return retired_.contains(page);
    }
    // How often the page was pinned, modulo 2^20.
    std::uint32_t uses(PageIndex page) const { return pins_.uses(page); }
    // Whether several entries refer to the page.
    bool is_shared(PageIndex page) const { return sharers(page) != 0; }
    // How many entries refer to the page, besides one.
    std::uint32_t sharers(PageIndex page) const {
        return sharers_[page].load(std::memory_order_relaxed);
    }
    std::uint64_t mapped_pages() const { return mapped_pages_.load(std::memory_order_relaxed); }

    // The caller holds the lock that guards the entries of the page: see page_entry.hpp.
    //
    bool is_pinned(PageIndex page) const { return pins_.any(page); }
    bool is_pinned_for_writing(PageIndex page) const { return pins_.any_writer(page); }
    // The page has its first entry, and so many more.
    void add_first_entry(PageIndex page, std::uint32_t sharers = 0) {
        GPUNBD_ASSERT(!retired_.contains(page), "a page that is mapped is not retired");
        GPUNBD_ASSERT(!is_shared(page), "a page that is mapped newly has one entry");
        sharers_[page].store(sharers, std::memory_order_relaxed);
        mapped_pages_.fetch_add(1, std::memory_order_relaxed);
    }
    void add_entry(PageIndex page) { sharers_[page].fetch_add(1, std::memory_order_relaxed); }
    // True: it was the last one.
    bool remove_entry(PageIndex page) {
        if (is_shared(page)) {
            sharers_[page].fetch_sub(1, std::memory_order_relaxed);
            return false;
        }
        remove_all_entries(page);
        return true;
    }
    void remove_all_entries(PageIndex page) {
        const std::uint64_t mapped = mapped_pages_.fetch_sub(1, std::memory_order_relaxed);
        GPUNBD_ASSERT(mapped != 0, "a page that loses its last entry was counted");
        sharers_[page].store(0, std::memory_order_relaxed);
    }

    // Pages that are taken and filled before they are mapped: see PageAllocator::Purpose.
    void begin_filling() { filling_.fetch_add(1, std::memory_order_relaxed); }
    void end_filling() {
        const std::uint32_t filling = filling_.fetch_sub(1, std::memory_order_relaxed);
        GPUNBD_ASSERT(filling != 0,
                      "a page that was taken to be filled is mapped or given back once");
    }
    std::uint32_t filling() const { return filling_.load(std::memory_order_relaxed); }

    // The caller holds the lock of the pool.
    RetiredPages& retired() { return retired_; }
    const RetiredPages& retired() const { return retired_; }

 private:
    PinCounts pins_;
    RetiredPages retired_;
    GrowingArray<Atomic<std::uint32_t>> sharers_;
    Atomic<std::uint64_t> mapped_pages_{0};
    Atomic<std::uint32_t> filling_{0};
};

}  // namespace gpunbd::storage
