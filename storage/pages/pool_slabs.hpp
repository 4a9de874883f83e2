// The slabs of one page pool: their memory, their entries in the directory, and their retained
// descriptors. Slabs are identified by their number in the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "storage/base/owned_fd.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/pages/imported_slabs.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/pool_config.hpp"

namespace gpunbd::storage {

class PoolSlabs {
 public:
    // By slab number.
    using Descriptors = std::map<std::uint32_t, OwnedFd>;
    // What another process needs to take over a slab.
    struct Copy {
        std::uint32_t slab = 0;
        SlabEntry entry;
        OwnedFd descriptor;
    };

    PoolSlabs(Device& device, const PoolConfig& config);

    std::uint32_t count() const { return count_; }  // of numbers, allocated or not
    std::uint32_t slab_pages() const { return slab_mask_ + 1; }
    std::size_t page_numbers() const { return std::size_t{count_} << slab_shift_; }
    std::uint32_t number_of(PageIndex page) const { return page >> slab_shift_; }
    std::uint32_t index_in_slab(PageIndex page) const { return page & slab_mask_; }

    // The slab of a page that the caller has pinned or taken; it is allocated.
    const Slab& slab_of(PageIndex page) const { return slabs_[page >> slab_shift_]; }
    std::uint64_t offset_in_slab(PageIndex page) const { return (page & slab_mask_) * page_size_; }
    // Null if the CPU cannot address the page.
    std::byte* cpu_of(PageIndex page) const {
        std::byte* const base = slab_of(page).cpu;
        return base == nullptr ? nullptr : base + offset_in_slab(page);
    }
    std::uint64_t address_of(PageIndex page) const {
        return slab_of(page).address + offset_in_slab(page);
    }

    SlabEntry entry(std::uint32_t number) const { return config_.directory.load(number); }
    bool is_retained() const { return config_.retainer != nullptr; }
    // Charged for each slab until it is released.
    SlabBudget& budget() const {
        return config_.budget != nullptr ? *config_.budget : device_.budget();
    }
    bool is_allocated(std::uint32_t number) const { return slabs_[number].bytes != 0; }

    // These two may block. The caller does not hold the lock of the pool.
    //
    // False: the slab cannot be retained, and has been released, as by release().
    bool retain(std::uint32_t number, Slab& slab);
    void release(std::uint32_t number, Slab& slab);

    // The caller holds the lock of the pool in the following.
    //
    // Publishes an allocated slab in the directory.
    void add(std::uint32_t number, std::uint32_t pages, Slab slab);
    // Takes the slab out of the directory; release() is next.
    Slab remove(std::uint32_t number);
    // Throws std::system_error if a descriptor cannot be copied.
    std::vector<Copy> copy() const;

    // Takes over a slab of another process. Returns false if the device refuses it.
    bool adopt(std::uint32_t number, SlabEntry entry, OwnedFd& descriptor, ImportedSlabs* imported);
    // Adopted slabs belong to this process from now on.
    void commit_adoption() { adopted_.assign(count_, false); }
    // Releases all slabs, but adopted slabs stay retained and in the directory.
    void abandon() noexcept;
    void release_all() noexcept;

    // Adopted slabs may not have a CPU address yet, since mapping them takes long.
    bool has_unmapped() const { return !unmapped_.empty(); }
    void allow_mapping() { mapping_allowed_ = true; }
    // The next slab for map(); null: no slab needs a mapping.
    Slab* next_unmapped();
    void map(Slab& slab) noexcept;  // without the lock

 private:
    void release_memory(Slab& slab) noexcept;

    Device& device_;
    const PoolConfig config_;
    const std::uint64_t page_size_;
    const std::uint32_t count_;
    const std::uint32_t slab_shift_;  // log2 of the pages in a slab
    const PageIndex slab_mask_;
    const std::unique_ptr<Slab[]> slabs_;
    std::vector<bool> adopted_;            // by number, until commit_adoption()
    std::vector<std::uint32_t> unmapped_;  // numbers of adopted slabs without a CPU address
    bool mapping_allowed_ = false;
};

}  // namespace gpunbd::storage
