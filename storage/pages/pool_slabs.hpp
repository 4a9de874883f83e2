// The slabs of one page pool: their memory, their entries in the directory, and their retained
// descriptors. Slabs are identified by their number in the pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/page_entry.hpp"
#include "storage/pages/growing_array.hpp"
#include "storage/pages/imported_slabs.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/pool_config.hpp"

namespace gpunbd::storage {

// See Slab::revocable.
enum class SlabKind : std::uint8_t { fixed, revocable };

class PoolSlabs {
 public:
    // What another process needs to take over a slab.
    struct Copy {
        std::uint32_t slab = 0;
        SlabEntry entry;
        OwnedFd descriptor;
    };

    PoolSlabs(Device& device, const PoolConfig& config);

    const PoolConfig& config() const { return config_; }
    Device& device() const { return device_; }
    // Whether a thread allocates, clears and releases ahead of need.
    bool works_ahead() const { return works_ahead_; }

    // Of numbers, allocated or not. It grows before a page of a new slab is used.
    std::uint32_t count() const { return count_.load(std::memory_order_acquire); }
    std::uint32_t slab_pages() const { return slab_mask_ + 1; }
    std::size_t page_numbers() const { return std::size_t{count()} << slab_shift_; }
    std::uint32_t number_of(PageIndex page) const { return page >> slab_shift_; }
    std::uint32_t index_in_slab(PageIndex page) const { return page & slab_mask_; }

    // The slab of a page that the caller has pinned or taken.
    const Slab& slab_of(PageIndex page) const {
        const Slab& slab = slabs_[page >> slab_shift_];
        GPUNBD_ASSERT(offset_in_slab(page) + page_size_ <= slab.bytes,
                      "the slab of a page that is pinned or taken is allocated");
        return slab;
    }
    std::uint64_t offset_in_slab(PageIndex page) const { return (page & slab_mask_) * page_size_; }
    // Null if the CPU cannot address the page.
    std::byte* cpu_of(PageIndex page) const {
        std::byte* const base = slab_of(page).cpu;
        return base == nullptr ? nullptr : base + offset_in_slab(page);
    }
    std::uint64_t address_of(PageIndex page) const {
        return slab_of(page).address + offset_in_slab(page);
    }

    SlabEntry entry(std::uint32_t number) const {
        if (is_retained()) return directory_.load(number);
        return SlabEntry::of_word(entries_[number].load());
    }
    bool is_retained() const { return config_.retainer != nullptr; }
    // Charged for each slab until it is released.
    SlabBudget& budget() const {
        return config_.budget != nullptr ? *config_.budget : device_.budget();
    }
    bool is_allocated(std::uint32_t number) const { return slabs_[number].bytes != 0; }
    SlabKind kind_of(std::uint32_t number) const {
        return slabs_[number].revocable ? SlabKind::revocable : SlabKind::fixed;
    }

    // These three call the device, for a page that the caller has taken. discard() returns whether
    // the page reads as zeroes; it and clear() may block.
    Status clear(PageIndex page) const;
    bool discard(PageIndex page) const noexcept;
    void populate(PageIndex page) const;

    // These two may block. The caller does not hold the lock of the pool.
    //
    // False: the slab cannot be retained, and has been released, as by release().
    bool retain(std::uint32_t number, Slab& slab);
    void release(std::uint32_t number, Slab& slab);

    // The caller holds the lock of the pool in the following.
    //
    // The most numbers that there can be.
    std::uint64_t max_count() const;
    // Adds numbers. Throws std::bad_alloc.
    void grow(std::uint32_t count);
    bool uses_shared_directory() const {
        return shared_ != nullptr && shared_->in_use(config_.device);
    }
    // Has the slabs there from now on. It is kept already.
    void move_directory(const std::shared_ptr<const SharedDirectory>& target);
    // Publishes an allocated slab in the directory.
    void add(std::uint32_t number, std::uint32_t pages, Slab slab);
    // Takes the allocated slab out of the directory; release() is next.
    Slab remove(std::uint32_t number);
    // Throws std::system_error if a descriptor cannot be copied.
    std::vector<Copy> copy() const;

    // Takes over a slab of another process, and accounts for its memory. Returns false if the
    // device refuses it.
    bool adopt(std::uint32_t number, SlabEntry entry, OwnedFd& descriptor, ImportedSlabs* imported);
    // Releases the memory of a slab, which stays retained and in the directory if it was adopted.
    // Otherwise the directory is as before the slab was made.
    void abandon(std::uint32_t number, bool adopted) noexcept;
    void release_all() noexcept;
    // Of an adopted slab, which is not released meanwhile: makes its memory addressable by the CPU,
    // which takes long. The caller does not hold the lock.
    void map(Slab& slab) noexcept;
    Slab& at(std::uint32_t number) { return slabs_[number]; }

 private:
    void release_memory(Slab& slab) noexcept;
    void store(std::uint32_t number, SlabEntry entry);

    Device& device_;
    const PoolConfig config_;
    const std::uint64_t page_size_;
    const bool works_ahead_;
    std::shared_ptr<const SharedDirectory> shared_;
    SlabDirectory directory_;
    std::atomic<std::uint32_t> count_;
    const std::uint32_t slab_shift_;  // log2 of the pages in a slab
    const PageIndex slab_mask_;
    GrowingArray<Slab> slabs_;
    // In place of the directory, if the slabs are not retained: volumes that share the pool have a
    // table each.
    GrowingArray<std::atomic<std::uint64_t>> entries_;
};

}  // namespace gpunbd::storage
