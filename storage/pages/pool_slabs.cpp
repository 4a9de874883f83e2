#include "storage/pages/pool_slabs.hpp"

#include <bit>
#include <cerrno>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

PoolDirectory::PoolDirectory(const PoolConfig& config)
    : device_(config.device),
      is_kept_(config.is_kept()),
      shared_(config.shared),
      kept_(config.directory),
      entries_(is_kept_ ? 0 : config.slabs) {
    GPUNBD_ASSERT(!is_kept_ || config.slabs <= kept_.slabs(),
                  "the directory of kept slabs has an entry for each slab number");
}

void PoolDirectory::store(std::uint32_t number, SlabEntry entry) {
    if (is_kept_) {
        kept_.store(number, entry);
    } else {
        entries_[number].store(entry.word());
    }
}

std::uint64_t PoolDirectory::max_count() const {
    return is_kept_ ? kept_.slabs() : std::numeric_limits<std::uint32_t>::max();
}

void PoolDirectory::grow(std::uint32_t count) {
    GPUNBD_ASSERT(count <= max_count(), "there are no more slab numbers than directory entries");
    if (!is_kept_) entries_.grow(count);
}

void PoolDirectory::move_to(const std::shared_ptr<const SharedDirectory>& target) {
    GPUNBD_ASSERT(is_kept_, "only kept slabs have a directory that can move");
    shared_ = target;
    if (target->in_use(device_)) return;
    const SlabDirectory slabs = target->slabs(device_);
    GPUNBD_ASSERT(kept_.slabs() <= slabs.slabs(),
                  "a shared directory has room for all slabs of a table");
    for (std::uint32_t number = 0; number != kept_.slabs(); ++number) {
        slabs.store(number, kept_.load(number));
    }
    target->set_in_use(device_);
    // A server that does not know shared directories finds no slabs, rather than old ones.
    for (std::uint32_t number = 0; number != kept_.slabs(); ++number) {
        kept_.store(number, {});
    }
    kept_ = slabs;
}

PoolSlabs::PoolSlabs(Device& device, const PoolConfig& config)
    : device_(device),
      config_(config),
      numbers_(config.slab_pages, config.page_size),
      directory_(config),
      count_(config.slabs),
      slabs_(count()) {
    GPUNBD_ASSERT(std::has_single_bit(config.page_size),
                  "a page size is a power of two, so that a mask finds the offset in a page");
    GPUNBD_ASSERT(count() != 0, "a pool has a slab number, so that their count can double");
}

void PoolSlabs::grow(std::uint32_t count) {
    GPUNBD_ASSERT(count >= this->count(), "slab numbers are added and never removed");
    slabs_.grow(count);
    directory_.grow(count);
    count_.store(count, std::memory_order_release);
}

// No exception may leave the thread of the pool.
Status PoolSlabs::clear(PageIndex page) const {
    try {
        return device_.clear(slab_of(page), numbers_.offset_in_slab(page), config_.page_size);
    } catch (const std::bad_alloc&) {  // no memory for an error message
        return Status::io_error;
    }
}

bool PoolSlabs::discard(PageIndex page) const noexcept {
    try {
        return device_.discard(slab_of(page), numbers_.offset_in_slab(page), config_.page_size);
    } catch (const std::bad_alloc&) {
        return false;  // the page has to be cleared
    }
}

void PoolSlabs::populate(PageIndex page) const {
    device_.populate(slab_of(page), numbers_.offset_in_slab(page), config_.page_size);
}

bool PoolSlabs::keep(std::uint32_t number, Slab& slab) {
    KeptParts* const kept_parts = config_.kept_parts.get();
    if (kept_parts == nullptr || kept_parts->keep(config_.device, number, slab.descriptor))
        return true;
    kept_parts->drop(config_.device, number);  // it may have been kept, but too late
    release_memory(slab);
    return false;
}

void PoolSlabs::release(std::uint32_t number, Slab& slab) {
    if (config_.is_kept()) config_.kept_parts->drop(config_.device, number);
    release_memory(slab);
}

void PoolSlabs::release_memory(Slab& slab) noexcept {
    const std::uint64_t bytes = slab.bytes;
    GPUNBD_ASSERT(bytes != 0, "only an allocated slab is released");
    device_.release(slab);
    budget().give_back(bytes);
}

void PoolSlabs::add(std::uint32_t number, std::uint32_t pages, Slab slab) {
    GPUNBD_ASSERT(!slabs_[number].is_allocated(), "a slab number has one slab at a time");
    GPUNBD_ASSERT(slab.bytes >= pages * config_.page_size,
                  "a slab has memory for each of its pages");
    slabs_[number] = std::move(slab);
    directory_.store(number, {.pages = pages,
                              .kind = slabs_[number].kind,
                              .generation = directory_.entry(number).generation + 1});
}

Slab PoolSlabs::remove(std::uint32_t number) {
    GPUNBD_ASSERT(slabs_[number].is_allocated(), "only an allocated slab leaves the directory");
    Slab slab = std::exchange(slabs_[number], Slab{});
    directory_.store(number, {.generation = directory_.entry(number).generation});
    return slab;
}

std::vector<PoolSlabs::Copy> PoolSlabs::copy() const {
    std::vector<Copy> copies;
    for (std::uint32_t number = 0; number != count(); ++number) {
        const Slab& slab = slabs_[number];
        if (!slab.is_allocated() || !slab.descriptor) continue;
        OwnedFd copy = OwnedFd::copy_of(slab.descriptor);
        if (!copy) throw std::system_error(errno, std::generic_category(), "no descriptor is left");
        copies.push_back(
            {.slab = number, .entry = directory_.entry(number), .descriptor = std::move(copy)});
    }
    return copies;
}

bool PoolSlabs::take_over(std::uint32_t number, SlabEntry entry, OwnedFd& descriptor,
                          ImportedSlabs* imported) {
    GPUNBD_ASSERT(!slabs_[number].is_allocated(), "a slab is taken over once");
    Slab slab;
    const SlabRecord record{.bytes = entry.pages * config_.page_size,
                            .provision = config_.provision,
                            .kind = entry.kind};
    const bool is_imported =
        imported != nullptr && imported->take(config_.device, number, entry, slab);
    if (!is_imported && device_.take_over(descriptor, record, slab) != Status::ok) return false;
    budget().add(slab.bytes);
    slabs_[number] = std::move(slab);
    return true;
}

void PoolSlabs::abandon(std::uint32_t number, bool taken_over) noexcept {
    Slab slab = std::exchange(slabs_[number], Slab{});
    if (!taken_over && config_.is_kept()) {
        directory_.store(number, {.generation = directory_.entry(number).generation - 1});
        config_.kept_parts->drop(config_.device, number);
    }
    release_memory(slab);
}

void PoolSlabs::release_all() noexcept {
    for (std::uint32_t number = 0; number != count(); ++number) {
        if (slabs_[number].is_allocated()) release_memory(slabs_[number]);
    }
}

}  // namespace gpunbd::storage
