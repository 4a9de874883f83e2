#include "storage/devices/gpu/revocable_slabs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t least_reserve = 128 << 20;  // bytes

}  // namespace

std::string reason_not_revocable(std::uint64_t revocable, std::uint64_t device_reserve,
                                 const HostRoom& host) {
    if (device_reserve < least_reserve) {
        return fmt::format(
            "revocable memory needs a reserve of {} MiB or more, not {} MiB: the server detects by "
            "the free memory that another program takes memory; set reserve: {}M",
            least_reserve >> 20, device_reserve >> 20, least_reserve >> 20);
    }
    const std::uint64_t kept = host.reserve + host.promised;
    const std::uint64_t room = host.available - std::min(host.available, kept);
    if (revocable <= room) return {};
    const std::uint64_t room_mib = room >> 20;
    return fmt::format(
        "revocable is {} MiB, but the host can take only {} MiB: {} MiB are available, {} MiB stay "
        "free, and {} MiB are for other devices; set revocable: {}{}",
        (revocable + (1 << 20) - 1) >> 20, room_mib, host.available >> 20, host.reserve >> 20,
        host.promised >> 20, room_mib, room_mib == 0 ? "" : "M");
}

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
