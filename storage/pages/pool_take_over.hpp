// The takeover of the slabs and pages of a pool that another process has made, before the pool has
// users. Either all of it is taken over, or nothing has changed.
//
//   take_over() --+-- commit() --> the pool serves --- finish() --> finished() is true later
//             |
//             +-- abandon() --> the pool can only be destroyed
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "storage/base/owned_fd.hpp"
#include "storage/devices/device.hpp"
#include "storage/pages/imported_slabs.hpp"
#include "storage/pages/page_allocator.hpp"

namespace gpunbd::storage {

class PoolTakeOver {
 public:
    explicit PoolTakeOver(PageAllocator& memory) : memory_(memory) {}

    // By slab number.
    using Descriptors = std::map<std::uint32_t, OwnedFd>;
    // How many page table entries refer to each page.
    using EntryCounts = std::vector<std::uint32_t>;

    // Takes over the slabs in the directory and takes their descriptors. Slabs may be in `imported`
    // already, which may be null. Returns an empty text, or the reason for a failure. Call commit()
    // or abandon() next; abandon() if this throws.
    std::string take_over(Descriptors& descriptors, const EntryCounts& entries,
                          ImportedSlabs* imported);
    // The pool serves from now on. Pages that are not mapped become free.
    void commit(const EntryCounts& entries) noexcept;
    // Releases all slabs. Slabs that were taken over stay kept and in the directory; slabs made
    // here do not.
    void abandon() noexcept;

    // The takeover leaves mapping slabs into the CPU's address space for later: false until it is
    // done.
    bool finished() const;
    // Lets the thread of the pool do that from now on.
    void finish() noexcept;
    // The next slab for PoolSlabs::map(); null: there is none. The caller holds the lock of the
    // pool.
    Slab* next_unmapped_slab();

    // What another process needs to take over the slabs, with copies of their descriptors. Throws
    // std::system_error if a descriptor cannot be copied.
    std::vector<PoolSlabs::Copy> copy_slabs() const;

 private:
    std::string take_over_slab(std::uint32_t number, SlabEntry entry, Descriptors& descriptors,
                               ImportedSlabs* imported) REQUIRES(memory_.mutex());
    // Whether the slab that has the page is there.
    bool has_slab_of(PageIndex page) const REQUIRES(memory_.mutex());

    PageAllocator& memory_;
    std::vector<std::uint32_t> taken_over_;  // slab numbers, until commit()
    std::vector<std::uint32_t> unmapped_ GUARDED_BY(memory_.mutex());  // slab numbers
    bool mapping_allowed_ GUARDED_BY(memory_.mutex()) = false;
};

}  // namespace gpunbd::storage
