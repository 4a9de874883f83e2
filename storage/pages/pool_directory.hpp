// What is known of each slab of a pool, by its number. The directory of retained slabs outlives the
// process: it is in the page table, or in a directory that several tables share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "storage/pages/growing_array.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/pool_config.hpp"
#include "storage/pages/shared_directory.hpp"

namespace gpunbd::storage {

class PoolDirectory {
 public:
    explicit PoolDirectory(const PoolConfig& config);

    SlabEntry entry(std::uint32_t number) const {
        if (is_retained_) return retained_.load(number);
        return SlabEntry::of_word(entries_[number].load());
    }
    // The caller holds the lock of the pool in the following.
    void store(std::uint32_t number, SlabEntry entry);
    // The most numbers that there can be.
    std::uint64_t max_count() const;
    // Throws std::bad_alloc.
    void grow(std::uint32_t count);
    bool is_shared() const { return shared_ != nullptr && shared_->in_use(device_); }
    // Of retained slabs: has the entries there from now on. The target is kept already.
    void move_to(const std::shared_ptr<const SharedDirectory>& target);

 private:
    const std::uint32_t device_;  // the index in the volume
    const bool is_retained_;
    std::shared_ptr<const SharedDirectory> shared_;
    SlabDirectory retained_;
    // In place of `retained_`: volumes that share the pool have a table each.
    GrowingArray<std::atomic<std::uint64_t>> entries_;
};

}  // namespace gpunbd::storage
