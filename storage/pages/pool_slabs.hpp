#pragma once

#include <atomic>
#include <bit>
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
#include "storage/pages/shared_directory.hpp"

namespace gpunbd::storage {

// What is known of each slab of a pool, by its number. The directory of kept slabs outlives the
// process: it is in the page table, or in a directory that several tables share.
class PoolDirectory {
 public:
    explicit PoolDirectory(const PoolConfig& config);

    SlabEntry entry(std::uint32_t number) const {
        if (is_kept_) return kept_.load(number);
        return SlabEntry::of_word(entries_[number].load());
    }
    // The caller holds the lock of the pool in the following.
    void store(std::uint32_t number, SlabEntry entry);
    // The most numbers that there can be.
    std::uint64_t max_count() const;
    // Throws std::bad_alloc.
    void grow(std::uint32_t count);
    bool is_shared() const { return shared_ != nullptr && shared_->in_use(device_); }
    // Of kept slabs: has the entries there from now on. The target is kept already.
    void move_to(const std::shared_ptr<const SharedDirectory>& target);

 private:
    const std::uint32_t device_;  // the index in the volume
    const bool is_kept_;
    std::shared_ptr<const SharedDirectory> shared_;
    SlabDirectory kept_;
    // In place of `kept_`: volumes that share the pool have a table each.
    GrowingArray<std::atomic<std::uint64_t>> entries_;
};

// The numbers of the pages in a pool: those of a slab follow each other.
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

// See Slab::revocable.
enum class SlabKind : std::uint8_t { fixed, revocable };
inline SlabKind kind_of(const Slab& slab) {
    return slab.revocable ? SlabKind::revocable : SlabKind::fixed;
}

// The slabs of one page pool: their memory and their kept descriptors, which agree with the
// directory. Slabs are identified by their number in the pool.
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
    const PageNumbers& numbers() const { return numbers_; }
    PoolDirectory& directory() { return directory_; }
    const PoolDirectory& directory() const { return directory_; }

    // Of numbers, allocated or not. It grows before a page of a new slab is used.
    std::uint32_t count() const { return count_.load(std::memory_order_acquire); }
    std::size_t page_numbers() const { return numbers_.in_slabs(count()); }

    // The slab of a page that the caller has pinned or taken.
    const Slab& slab_of(PageIndex page) const {
        const Slab& slab = slabs_[numbers_.slab_of(page)];
        GPUNBD_ASSERT(numbers_.offset_in_slab(page) + config_.page_size <= slab.bytes,
                      "the slab of a page that is pinned or taken is allocated");
        return slab;
    }
    // Null if the CPU cannot address the page.
    std::byte* cpu_of(PageIndex page) const {
        std::byte* const base = slab_of(page).cpu;
        return base == nullptr ? nullptr : base + numbers_.offset_in_slab(page);
    }
    std::uint64_t address_of(PageIndex page) const {
        return slab_of(page).address + numbers_.offset_in_slab(page);
    }

    // Charged for each slab until it is released.
    SlabBudget& budget() const {
        return config_.budget != nullptr ? *config_.budget : device_.budget();
    }

    // These three call the device, for a page that the caller has taken. discard() returns whether
    // the page reads as zeroes; it and clear() may block.
    Status clear(PageIndex page) const;
    bool discard(PageIndex page) const noexcept;
    void populate(PageIndex page) const;

    // These two may block. The caller does not hold the lock of the pool.
    //
    // False: the slab cannot be kept, and has been released, as by release().
    bool keep(std::uint32_t number, Slab& slab);
    void release(std::uint32_t number, Slab& slab);

    // The caller holds the lock of the pool in the following.
    //
    // Adds numbers. Throws std::bad_alloc.
    void grow(std::uint32_t count);
    // Publishes an allocated slab in the directory.
    void add(std::uint32_t number, std::uint32_t pages, Slab slab);
    // Takes the allocated slab out of the directory; release() is next.
    Slab remove(std::uint32_t number);
    // Throws std::system_error if a descriptor cannot be copied.
    std::vector<Copy> copy() const;

    // Takes over a slab of another process, and accounts for its memory. Returns false if the
    // device refuses it.
    bool take_over(std::uint32_t number, SlabEntry entry, OwnedFd& descriptor,
                   ImportedSlabs* imported);
    // Releases the memory of a slab, which stays kept and in the directory if it was taken over.
    // Otherwise the directory is as before the slab was made.
    void abandon(std::uint32_t number, bool taken_over) noexcept;
    void release_all() noexcept;
    // Allocated or not.
    Slab& at(std::uint32_t number) const { return slabs_[number]; }

 private:
    void release_memory(Slab& slab) noexcept;

    Device& device_;
    const PoolConfig config_;
    const PageNumbers numbers_;
    PoolDirectory directory_;
    std::atomic<std::uint32_t> count_;
    GrowingArray<Slab> slabs_;
};

}  // namespace gpunbd::storage
