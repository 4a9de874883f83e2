#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

// Which processor accesses the revocable memory of a GPU. Normally the GPU does. While the driver
// moves pages to the host for another program, the CPU does, since an access by the GPU would bring
// the page back. All functions may be called from any thread.
class RevocableAccess {
 public:
    using Clock = std::chrono::steady_clock;

    // A copy that takes longer, while the driver also does not answer, waits for pages.
    static constexpr std::chrono::milliseconds stall{10};

    bool by_cpu() const { return by_cpu_.load(std::memory_order_relaxed); }
    void set_by_cpu(bool by_cpu) { by_cpu_.store(by_cpu, std::memory_order_relaxed); }

    // The EvictionWatch asks the driver for the free memory. While the driver moves pages, it may
    // not answer until the other program has all of its memory.
    void query_begins(Clock::time_point now) {
        query_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    }
    void query_ends() { query_.store(0, std::memory_order_relaxed); }
    // A worker's copy of revocable memory on the GPU has not ended for `stall`. The EvictionWatch
    // corrects a wrong conclusion when it has the answer.
    void copy_stalls(Clock::time_point now) {
        const Clock::rep query = query_.load(std::memory_order_relaxed);
        if (query == 0) return;
        const Clock::time_point since{Clock::duration(query)};
        if (now - since >= stall) set_by_cpu(true);
    }

 private:
    std::atomic<bool> by_cpu_{false};
    std::atomic<Clock::rep> query_{0};  // when it began; 0: there is none
};

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

// Device memory.
struct MemoryRange {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    bool operator==(const MemoryRange&) const = default;
};

// The revocable slabs of one device. When the driver takes memory from them, all are yielded. The
// watch of the device claims them one at a time to return their pages to the device, while other
// threads allocate and release slabs.
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
