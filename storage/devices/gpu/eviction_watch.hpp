// Decides which processor accesses revocable slabs. The driver moves their pages to host memory
// when another program allocates more device memory than is free. Accesses by the GPU would then
// bring them back, and the two programs would take memory from each other all the time. So the
// watch looks at the free device memory: when there is hardly any, the CPU makes all copies, which
// leaves pages on the host; when it has been free for a while, they return to the device.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "storage/devices/gpu/revocable_slabs.hpp"

namespace gpunbd::storage {

class EvictionWatch {
 public:
    using Clock = std::chrono::steady_clock;

    // Called by step(). Only host_memory may throw.
    struct Calls {
        std::function<std::uint64_t()> free_memory;  // of the device, in bytes
        std::function<std::uint64_t()> host_memory;  // that this process can allocate, in bytes
        // Moves pages to the device and waits for it. False: they could not be moved.
        std::function<bool(MemoryRange)> fetch;
        std::function<Clock::time_point()> now;
    };

    // In bytes. low < high.
    struct Marks {
        std::uint64_t low = 0;   // with less free device memory, another program is taking memory
        std::uint64_t high = 0;  // with more, pages return
        std::uint64_t host_reserve = 0;  // of host memory
    };

    static constexpr std::chrono::milliseconds interval{5};
    static constexpr std::chrono::seconds patience{5};  // until pages return
    static constexpr std::uint64_t piece = 32 << 20;    // bytes that return at a time

    // `slabs` and `access` outlive the watch.
    EvictionWatch(std::string device_id, RevocableSlabs& slabs, RevocableAccess& access,
                  const Marks& marks, Calls calls);

    // Does at most one piece of work. The next call is due after the returned time, which is as
    // long as the work took when pages return, so that clients keep half of the link.
    // On one thread.
    Clock::duration step();
    // Nothing calls step() any more.
    void stop() noexcept;

    // The following functions may be called from any thread.
    //
    // Whether pages have been taken, and have not all returned yet.
    bool evicting() const { return evicting_.load(std::memory_order_relaxed); }
    // How often that began.
    std::uint64_t evictions() const { return evictions_.load(std::memory_order_relaxed); }
    // Bytes of revocable memory that the host could not take.
    std::uint64_t excess() const { return excess_.load(std::memory_order_relaxed); }

 private:
    Clock::duration look(Clock::time_point now);
    void look_at_host(Clock::time_point now);
    void begin(Clock::time_point now, std::uint64_t free);
    void end(Clock::time_point now);
    Clock::duration bring_back(Clock::time_point now);
    void stop_returning() noexcept;

    const std::string device_id_;
    RevocableSlabs& slabs_;
    RevocableAccess& access_;
    const Marks marks_;
    const Calls calls_;

    std::atomic<bool> evicting_{false};
    std::atomic<std::uint64_t> evictions_{0};
    std::atomic<std::uint64_t> excess_{0};

    Clock::time_point began_{};  // the current eviction
    std::optional<Clock::time_point> host_seen_;
    std::optional<Clock::time_point> free_since_;
    bool returning_ = false;
    std::optional<MemoryRange> returning_slab_;  // claimed
    std::uint64_t returned_ = 0;                 // bytes of it
};

}  // namespace gpunbd::storage
