#include "storage/pages/free_pages.hpp"

#include <bit>
#include <cstddef>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

FreePages::FreePages(std::uint32_t slabs, std::uint32_t slab_pages)
    : slab_shift_(static_cast<std::uint32_t>(std::countr_zero(slab_pages))),
      slab_count_(slabs),
      slabs_(slabs),
      free_(std::size_t{slabs} << slab_shift_),
      clear_(std::size_t{slabs} << slab_shift_),
      has_free_(slabs),
      has_clear_(slabs) {
    GPUNBD_ASSERT(std::has_single_bit(slab_pages),
                  "slabs have a power of two of page numbers, so that a shift finds the slab");
}

void FreePages::grow(std::uint32_t slabs) {
    GPUNBD_ASSERT(slabs >= slab_count_, "slab numbers are added and never removed");
    slabs_.resize(slabs);
    free_.grow(std::size_t{slabs} << slab_shift_);
    clear_.grow(std::size_t{slabs} << slab_shift_);
    has_free_.grow(slabs);
    has_clear_.grow(slabs);
    slab_count_ = slabs;
}

std::uint32_t FreePages::unreserved_slab() const {
    std::uint32_t slab = 0;
    while (slab != slab_count_ && slabs_[slab].pages != 0) ++slab;
    return slab;
}

void FreePages::reserve_slab(std::uint32_t slab, std::uint32_t pages) {
    GPUNBD_ASSERT(slab < slab_count_, "there is room for a slab number before it is reserved");
    GPUNBD_ASSERT(slabs_[slab].pages == 0, "a slab number is reserved for one slab at a time");
    GPUNBD_ASSERT(pages != 0 && pages <= std::uint32_t{1} << slab_shift_,
                  "a slab has at most as many pages as it has page numbers");
    slabs_[slab].pages = pages;
    reserved_pages_ += pages;
}

void FreePages::unreserve_slab(std::uint32_t slab) {
    GPUNBD_ASSERT(slabs_[slab].pages != 0, "only a reserved slab number is given up");
    GPUNBD_ASSERT(slabs_[slab].free == 0 && !slabs_[slab].draining,
                  "a slab is removed before its number is given up");
    reserved_pages_ -= slabs_[slab].pages;
    slabs_[slab].pages = 0;
}

void FreePages::add_slab(std::uint32_t slab) {
    SlabCounts& counts = slabs_[slab];
    GPUNBD_ASSERT(counts.pages != 0, "a slab number is reserved before its slab is added");
    GPUNBD_ASSERT(counts.free == 0 && !counts.draining, "a slab is added once");
    counts.free = counts.clear = counts.pages;
    const PageIndex begin = slab << slab_shift_;
    for (PageIndex page = begin; page != begin + counts.pages; ++page) {
        free_.set(page);
        clear_.set(page);
    }
    has_free_.set(slab);
    has_clear_.set(slab);
    free_pages_ += counts.pages;
    clear_pages_ += counts.pages;
    ++empty_slabs_;
}

void FreePages::remove_slab(std::uint32_t slab) {
    SlabCounts& counts = slabs_[slab];
    GPUNBD_ASSERT(is_empty(slab), "a slab is removed once none of its pages is in use");
    if (counts.draining) {
        counts.draining = false;
        --draining_slabs_;
        --drained_slabs_;
    } else {
        free_pages_ -= counts.free;
        clear_pages_ -= counts.clear;
        --empty_slabs_;
    }
    counts.free = counts.clear = 0;
    const PageIndex begin = slab << slab_shift_;
    for (PageIndex page = begin; page != begin + counts.pages; ++page) {
        free_.reset(page);
        clear_.reset(page);
    }
    has_free_.reset(slab);
    has_clear_.reset(slab);
}

std::uint32_t FreePages::last_empty_slab() const {
    GPUNBD_ASSERT(empty_slabs_ != 0, "an empty slab is looked for only if there is one");
    std::uint32_t slab = slab_count_ - 1;
    while (!is_empty(slab) || slabs_[slab].draining) --slab;
    return slab;
}

std::uint32_t FreePages::drained_slab() const {
    GPUNBD_ASSERT(drained_slabs_ != 0, "a drained slab is looked for only if there is one");
    std::uint32_t slab = slab_count_ - 1;
    while (!is_empty(slab) || !slabs_[slab].draining) --slab;
    return slab;
}

void FreePages::set_draining(std::uint32_t slab, bool draining) {
    SlabCounts& counts = slabs_[slab];
    if (counts.draining == draining) return;
    GPUNBD_ASSERT(counts.pages != 0, "only a slab that exists is drained");
    GPUNBD_ASSERT(draining || !is_empty(slab),
                  "a slab that is drained is released, and does not stop draining");
    counts.draining = draining;
    if (draining) {
        ++draining_slabs_;
        free_pages_ -= counts.free;
        clear_pages_ -= counts.clear;
        has_free_.reset(slab);
        has_clear_.reset(slab);
        if (is_empty(slab)) {
            --empty_slabs_;
            ++drained_slabs_;
        }
    } else {
        --draining_slabs_;
        free_pages_ += counts.free;
        clear_pages_ += counts.clear;
        if (counts.free != 0) has_free_.set(slab);
        if (counts.clear != 0) has_clear_.set(slab);
    }
}

bool FreePages::find(Page& page) const {
    if (free_pages_ == 0) return false;
    const Bitmap& slabs = clear_pages_ != 0 ? has_clear_ : has_free_;
    const std::uint32_t slab = slabs.first_set(0, slab_count_);
    GPUNBD_ASSERT(slab != slab_count_, "each counted page is in a slab that is marked");
    return find_in(slab, page);
}

bool FreePages::find_in(std::uint32_t slab, Page& page) const {
    if (!has_free_.is_set(slab)) return false;
    page.is_clear = has_clear_.is_set(slab);
    const PageIndex begin = slab << slab_shift_;
    const PageIndex end = begin + (PageIndex{1} << slab_shift_);
    page.index = (page.is_clear ? clear_ : free_).first_set(begin, end);
    GPUNBD_ASSERT(page.index != end, "a slab is marked while it has a free page");
    return true;
}

FreePages::Page FreePages::find_unclear() const {
    GPUNBD_ASSERT(free_pages_ > clear_pages_,
                  "a page that has to be cleared is looked for only if there is one");
    const std::uint32_t end = slab_count_ << slab_shift_;
    PageIndex page = free_.first_set(0, end);
    while (clear_.is_set(page) || slabs_[page >> slab_shift_].draining) {
        page = free_.first_set(page + 1, end);
    }
    return {page, false};
}

bool FreePages::take(Page page) {
    const std::uint32_t slab = page.index >> slab_shift_;
    SlabCounts& counts = slabs_[slab];
    GPUNBD_ASSERT(is_free(page.index), "only a free page is taken");
    GPUNBD_ASSERT(clear_.is_set(page.index) == page.is_clear,
                  "whether a page reads as zeroes does not change while it is free");
    GPUNBD_ASSERT(!counts.draining, "no page of a draining slab is taken");
    const bool was_empty = counts.free == counts.pages;
    if (was_empty) --empty_slabs_;
    free_.reset(page.index);
    --free_pages_;
    if (--counts.free == 0) has_free_.reset(slab);
    if (!page.is_clear) return was_empty;
    clear_.reset(page.index);
    --clear_pages_;
    if (--counts.clear == 0) has_clear_.reset(slab);
    return was_empty;
}

bool FreePages::put(Page page) {
    const std::uint32_t slab = page.index >> slab_shift_;
    SlabCounts& counts = slabs_[slab];
    GPUNBD_ASSERT(page.index - (slab << slab_shift_) < counts.pages,
                  "a free page lies within a slab that exists");
    GPUNBD_ASSERT(!is_free(page.index), "a page becomes free once");
    free_.set(page.index);
    if (page.is_clear) {
        clear_.set(page.index);
        ++counts.clear;
    }
    ++counts.free;
    if (counts.draining) {
        if (is_empty(slab)) ++drained_slabs_;
        return is_empty(slab);
    }
    has_free_.set(slab);
    ++free_pages_;
    if (page.is_clear) {
        has_clear_.set(slab);
        ++clear_pages_;
    }
    if (is_empty(slab)) ++empty_slabs_;
    return is_empty(slab);
}

}  // namespace gpunbd::storage
