#include "storage/devices/gpu/revocable_slabs.hpp"

#include <algorithm>

namespace gpunbd::storage {

void RevocableSlabs::add(MemoryRange slab) {
    const Lock lock(mutex_);
    slabs_.insert_or_assign(slab.address, Entry{.bytes = slab.bytes});
    bytes_.fetch_add(slab.bytes, std::memory_order_relaxed);
}

void RevocableSlabs::remove(std::uint64_t address) noexcept {
    const Lock lock(mutex_);
    const auto found = slabs_.find(address);
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
    Entry& slab = slabs_.find(address)->second;
    slab.claimed = false;
    if (returned) {
        slab.yielded = false;
        yielded_.fetch_sub(slab.bytes, std::memory_order_relaxed);
    }
    unclaimed_.notify_all();
}

}  // namespace gpunbd::storage
