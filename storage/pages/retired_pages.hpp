// Pages of a pool that are no longer mapped and may still be pinned. A write to the number of such
// a page gets the same page, cleared; until then the page keeps its contents for its pins. So a
// volume has no more pages than page numbers, unless pages move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/atomic.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/pages/growing_array.hpp"

namespace gpunbd::storage {

class RetiredPages {
 public:
    explicit RetiredPages(std::size_t pages) : retired_(pages), numbers_(pages) {}

    // Any thread. Sequentially consistent: see PageStates::pin(). On x86 and ARMv8 no test can tell
    // whether the store in add() is: it is ordered before PinCounts::any() by the pool's lock,
    // which is released and taken in between. C++ alone does not promise that.
    bool contains(PageIndex page) const { return retired_[page].load(); }

    // The caller holds the lock of the pool.
    //
    // Throws std::bad_alloc.
    void grow(std::size_t pages) {
        numbers_.resize(pages);
        retired_.grow(pages);
    }
    static constexpr std::uint64_t no_number = ~std::uint64_t{0};
    // `number`: the page number in the volume to which the page was mapped. no_number: its contents
    // are elsewhere, or will not be needed again.
    void add(PageIndex page, std::uint64_t number) {
        GPUNBD_ASSERT(!contains(page), "a page is retired once before it is reused");
        numbers_[page] = number;
        retired_[page].store(true);
        ++count_;
        if (number == no_number) ++unnumbered_;
    }
    void remove(PageIndex page) {
        GPUNBD_ASSERT(contains(page), "only a retired page is reused");
        GPUNBD_ASSERT(count_ != 0 && (numbers_[page] != no_number || unnumbered_ != 0),
                      "every retired page is counted");
        retired_[page].store(false);
        --count_;
        if (numbers_[page] == no_number) --unnumbered_;
    }
    bool contains(PageIndex page, std::uint64_t number) const {
        return contains(page) && numbers_[page] == number;
    }
    std::uint64_t count() const { return count_; }
    std::uint64_t unnumbered() const { return unnumbered_; }  // with no_number

 private:
    GrowingArray<Atomic<bool>> retired_;
    std::vector<std::uint64_t> numbers_;
    std::uint64_t count_ = 0;
    std::uint64_t unnumbered_ = 0;
};

}  // namespace gpunbd::storage
