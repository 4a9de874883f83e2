#include "storage/pages/pool_directory.hpp"

#include <limits>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

PoolDirectory::PoolDirectory(const PoolConfig& config)
    : device_(config.device),
      is_retained_(config.is_retained()),
      shared_(config.shared),
      retained_(config.directory),
      entries_(is_retained_ ? 0 : config.slabs) {
    GPUNBD_ASSERT(!is_retained_ || config.slabs <= retained_.slabs(),
                  "the directory of retained slabs has an entry for each slab number");
}

void PoolDirectory::store(std::uint32_t number, SlabEntry entry) {
    if (is_retained_) {
        retained_.store(number, entry);
    } else {
        entries_[number].store(entry.word());
    }
}

std::uint64_t PoolDirectory::max_count() const {
    return is_retained_ ? retained_.slabs() : std::numeric_limits<std::uint32_t>::max();
}

void PoolDirectory::grow(std::uint32_t count) {
    GPUNBD_ASSERT(count <= max_count(), "there are no more slab numbers than directory entries");
    if (!is_retained_) entries_.grow(count);
}

void PoolDirectory::move_to(const std::shared_ptr<const SharedDirectory>& target) {
    GPUNBD_ASSERT(is_retained_, "only retained slabs have a directory that can move");
    shared_ = target;
    if (target->in_use(device_)) return;
    const SlabDirectory slabs = target->slabs(device_);
    GPUNBD_ASSERT(retained_.slabs() <= slabs.slabs(),
                  "a shared directory has room for all slabs of a table");
    for (std::uint32_t number = 0; number != retained_.slabs(); ++number) {
        slabs.store(number, retained_.load(number));
    }
    target->set_in_use(device_);
    // A server that does not know shared directories finds no slabs, rather than old ones.
    for (std::uint32_t number = 0; number != retained_.slabs(); ++number) {
        retained_.store(number, {});
    }
    retained_ = slabs;
}

}  // namespace gpunbd::storage
