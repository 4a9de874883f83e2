#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

// All sizes are in bytes.

// What revocable memory leaves to other users of the host.
constexpr std::uint64_t host_reserve_beside_revocable(std::uint64_t host_total) {
    constexpr std::uint64_t least = 512 << 20;
    return std::max(least, host_total / 16);
}

// Own slabs never take the reserve of the device. So with less free memory than this, which is half
// of the reserve or less, another program has taken the rest.
constexpr std::uint64_t low_free_memory(std::uint64_t device_total, std::uint64_t reserve) {
    constexpr std::uint64_t least = 512 << 20;
    return std::min(std::max(least, device_total / 64), reserve / 2);
}

// How much memory may be revocable, and when the device counts as full.
struct HostRoom {
    std::uint64_t available = 0;
    std::uint64_t reserve = 0;
    std::uint64_t promised = 0;  // to revocable memory of other devices
};

// Why `revocable` bytes are not possible on a device with this reserve, in one line; empty: they
// are.
std::string reason_not_revocable(std::uint64_t revocable, std::uint64_t device_reserve,
                                 const HostRoom& host);

// The revocable slabs of one device. When the driver takes memory from them, all are yielded. The
// watch of the device claims them one at a time to return their pages to the device, while other
// threads allocate and release slabs.
// Device memory.
struct MemoryRange {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    bool operator==(const MemoryRange&) const = default;
};

// All functions may be called from any thread.
class RevocableSlabs {
 public:
    // A new slab, which is not yielded.
    void add(MemoryRange slab);
    // Called before the memory of the slab is freed. Waits while the slab is claimed.
    void remove(std::uint64_t address) noexcept;

    // From now on, pages of any slab may be on the host.
    void yield_all() noexcept;
    // A yielded slab, for unclaim(). Empty: there is none, or all are claimed.
    std::optional<MemoryRange> claim();
    // `returned`: its pages are on the device again.
    void unclaim(std::uint64_t address, bool returned) noexcept;

    std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
    // Of yielded slabs.
    std::uint64_t yielded() const { return yielded_.load(std::memory_order_relaxed); }

 private:
    struct Entry {
        std::uint64_t bytes = 0;
        bool yielded = false;
        bool claimed = false;
    };

    std::atomic<std::uint64_t> bytes_{0};
    std::atomic<std::uint64_t> yielded_{0};
    Mutex mutex_;
    std::map<std::uint64_t, Entry> slabs_ GUARDED_BY(mutex_);  // by address
    Condition unclaimed_;
};

}  // namespace gpunbd::storage
