#include "storage/devices/gpu/revocable_slabs.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

void RevocableSlabs::add(MemoryRange slab) {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(!slabs_.contains(slab.address), "a slab is removed before its memory is freed");
    slabs_.insert_or_assign(slab.address, Entry{.bytes = slab.bytes});
    bytes_.fetch_add(slab.bytes, std::memory_order_relaxed);
}

void RevocableSlabs::remove(std::uint64_t address) noexcept {
    const Lock lock(mutex_);
    const auto found = slabs_.find(address);
    GPUNBD_ASSERT(found != slabs_.end(), "a revocable slab is removed once");
    while (found->second.claimed) unclaimed_.wait(mutex_);
    bytes_.fetch_sub(found->second.bytes, std::memory_order_relaxed);
    if (found->second.yielded) {
        yielded_.fetch_sub(found->second.bytes, std::memory_order_relaxed);
    }
    slabs_.erase(found);
}

void RevocableSlabs::yield_all() noexcept {
    const Lock lock(mutex_);
    for (auto& [address, slab] : slabs_) slab.yielded = true;
    yielded_.store(bytes_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

std::optional<MemoryRange> RevocableSlabs::claim() {
    const Lock lock(mutex_);
    const auto found = std::ranges::find_if(
        slabs_, [](const auto& slab) { return slab.second.yielded && !slab.second.claimed; });
    if (found == slabs_.end()) return std::nullopt;
    found->second.claimed = true;
    return MemoryRange{.address = found->first, .bytes = found->second.bytes};
}

void RevocableSlabs::unclaim(std::uint64_t address, bool returned) noexcept {
    const Lock lock(mutex_);
    const auto found = slabs_.find(address);
    GPUNBD_ASSERT(found != slabs_.end() && found->second.claimed,
                  "a slab is not removed while it is claimed");
    Entry& slab = found->second;
    slab.claimed = false;
    if (returned) {
        slab.yielded = false;
        yielded_.fetch_sub(slab.bytes, std::memory_order_relaxed);
    }
    unclaimed_.notify_all();
}

}  // namespace gpunbd::storage
