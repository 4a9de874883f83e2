#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/devices/page_entry.hpp"

namespace gpunbd::storage {

// A set of small numbers, one bit each.
class Bitmap {
 public:
    explicit Bitmap(std::size_t bits) : words_(bits / word_bits + 1) {}

    // Throws std::bad_alloc.
    void grow(std::size_t bits) { words_.resize(bits / word_bits + 1); }
    void set(std::uint32_t bit) { words_[word_of(bit)] |= mask(bit); }
    void reset(std::uint32_t bit) { words_[word_of(bit)] &= ~mask(bit); }
    bool is_set(std::uint32_t bit) const { return (words_[word_of(bit)] & mask(bit)) != 0; }
    // The first set bit in [from, to), or `to`.
    std::uint32_t first_set(std::uint32_t from, std::uint32_t to) const {
        GPUNBD_ASSERT(from < to, "a range that is searched has a bit");
        std::uint32_t index = from / word_bits;
        const std::uint32_t last = (to - 1) / word_bits;
        std::uint64_t word = words_[index] & ~std::uint64_t{0} << (from % word_bits);
        while (word == 0) {
            if (index == last) return to;
            word = words_[++index];
        }
        return std::min(to, index * word_bits + static_cast<std::uint32_t>(std::countr_zero(word)));
    }

 private:
    static constexpr std::uint32_t word_bits = 64;
    std::size_t word_of(std::uint32_t bit) const {
        GPUNBD_ASSERT(bit / word_bits < words_.size(), "the set has grown to each of its numbers");
        return bit / word_bits;
    }
    static std::uint64_t mask(std::uint32_t bit) { return std::uint64_t{1} << (bit % word_bits); }

    std::vector<std::uint64_t> words_;
};

// Which pages of a pool are free, and which of these read as zeroes. This is bookkeeping only: it
// never calls the device, and the caller holds the lock of the pool.
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
