// The revocable slabs of one device. When the driver takes memory from them, all are yielded. The
// watch of the device claims them one at a time to return their pages to the device, while other
// threads allocate and release slabs.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

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
