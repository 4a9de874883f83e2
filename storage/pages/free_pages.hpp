// Which pages of a pool are free, and which of these read as zeroes. This is bookkeeping only: it
// never calls the device, and the caller holds the lock of the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/devices/page_entry.hpp"
#include "storage/pages/bitmap.hpp"

namespace gpunbd::storage {

class FreePages {
 public:
    FreePages(std::uint32_t slabs, std::uint32_t slab_pages);

    // Adds slab numbers up to this count. Throws std::bad_alloc.
    void grow(std::uint32_t slabs);
    // A slab number is reserved before its slab is allocated, and until its slab has been released.
    // One more than the last number: there is none.
    std::uint32_t unreserved_slab() const;
    void reserve_slab(std::uint32_t slab, std::uint32_t pages);
    void unreserve_slab(std::uint32_t slab);
    // All pages of a reserved slab become free and read as zeroes.
    void add_slab(std::uint32_t slab);
    // The pages of an empty slab are not free any more. It is not draining any more either.
    void remove_slab(std::uint32_t slab);
    // The last slab of which all pages are free and that is not draining.
    std::uint32_t last_empty_slab() const;
    // While a slab is draining, none of its free pages is found or counted below, so that it
    // becomes empty once its pages have moved.
    void set_draining(std::uint32_t slab, bool draining);
    bool is_draining(std::uint32_t slab) const { return slabs_[slab].draining; }
    // An empty slab that is draining: to be released.
    std::uint32_t drained_slab() const;
    std::uint32_t pages_in_slab(std::uint32_t slab) const { return slabs_[slab].pages; }

    struct Page {
        PageIndex index = 0;
        bool is_clear = false;  // reads as zeroes
    };
    // A free page, preferably one that reads as zeroes. False: no page is free.
    bool find(Page& page) const;
    // The same, of one slab that is not draining.
    bool find_in(std::uint32_t slab, Page& page) const;
    // A free page that has to be cleared.
    Page find_unclear() const;
    // The page is not free any more. True: its slab was empty until now.
    bool take(Page page);
    // The page is free. True: its slab is empty now, draining or not.
    bool put(Page page);
    bool is_empty(std::uint32_t slab) const {
        return slabs_[slab].pages != 0 && slabs_[slab].free == slabs_[slab].pages;
    }
    bool is_free(PageIndex page) const { return free_.is_set(page); }

    std::uint64_t reserved_pages() const { return reserved_pages_; }  // in all reserved slabs
    std::uint64_t free_pages() const { return free_pages_; }
    std::uint64_t clear_pages() const { return clear_pages_; }
    std::uint32_t empty_slabs() const { return empty_slabs_; }  // that are not draining
    std::uint32_t draining_slabs() const { return draining_slabs_; }
    std::uint32_t drained_slabs() const { return drained_slabs_; }  // empty and draining

 private:
    struct SlabCounts {
        std::uint32_t pages = 0;  // 0: the number is not reserved
        std::uint32_t free = 0;
        std::uint32_t clear = 0;
        bool draining = false;
    };

    std::uint32_t slab_shift_;  // log2 of the pages in a slab
    std::uint32_t slab_count_;
    std::vector<SlabCounts> slabs_;
    Bitmap free_;       // by page
    Bitmap clear_;      // by page
    Bitmap has_free_;   // by slab
    Bitmap has_clear_;  // by slab
    std::uint64_t reserved_pages_ = 0;
    std::uint64_t free_pages_ = 0;
    std::uint64_t clear_pages_ = 0;
    std::uint32_t empty_slabs_ = 0;
    std::uint32_t draining_slabs_ = 0;
    std::uint32_t drained_slabs_ = 0;
};

}  // namespace gpunbd::storage
