// The numbers of the pages in a pool: those of a slab follow each other.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "storage/devices/page_entry.hpp"

namespace gpunbd::storage {

class PageNumbers {
 public:
    // `slab_pages` is a power of two. `page_size`: bytes
    PageNumbers(std::uint32_t slab_pages, std::uint64_t page_size)
        : page_size_(page_size),
          shift_(static_cast<std::uint32_t>(std::countr_zero(slab_pages))),
          mask_(slab_pages - 1) {}

    std::uint32_t slab_pages() const { return mask_ + 1; }
    // The pages of so many slabs.
    std::size_t in_slabs(std::uint32_t slabs) const { return std::size_t{slabs} << shift_; }
    // The number of the page's slab.
    std::uint32_t slab_of(PageIndex page) const { return page >> shift_; }
    std::uint32_t index_in_slab(PageIndex page) const { return page & mask_; }
    // In bytes.
    std::uint64_t offset_in_slab(PageIndex page) const { return index_in_slab(page) * page_size_; }

 private:
    std::uint64_t page_size_;
    std::uint32_t shift_;  // log2 of the pages in a slab
    PageIndex mask_;
};

}  // namespace gpunbd::storage
