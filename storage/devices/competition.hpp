// Detects whether another program computes on the GPU. A GPU gives time slices to one process at a
// time, so our kernels would wait for the other program and take time from it. Copy engines do
// neither.
//
// Kernels that take too long raise the suspicion. Probes confirm it, and find out when the other
// program has stopped.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "storage/base/counter.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

enum class GpuUse : std::uint8_t {
    automatic,     // kernels unless another program computes on the GPU
    copy_engines,  // never kernels
    all,           // always kernels
};

// All functions may be called from any thread. Times are those of one monotonic clock.
class Competition {
 public:
    using Clock = std::chrono::steady_clock;

    // A lone kernel takes about 10 us; a time slice is some milliseconds long.
    static constexpr std::chrono::microseconds slow{200};
    static constexpr std::chrono::milliseconds window{
        10};  // two slow kernels within it raise the suspicion
    // A probe takes a slice of 0.3 ms from the other program: at this rate less than 0.5%.
    static constexpr std::chrono::milliseconds probe_interval{100};
    static constexpr std::uint32_t min_quiet_probes = 3;  // this many in a row end it
    static constexpr std::uint32_t max_quiet_probes = 24;
    // If the competition returns within this time, the next one needs twice as many quiet probes.
    static constexpr std::chrono::seconds relapse{1};
    // If no probe confirms a suspicion, a burst of our own probably caused it. The next suspicion
    // is ignored for a while.
    static constexpr std::chrono::milliseconds min_trust{20};
    static constexpr std::chrono::milliseconds max_trust{1000};

    explicit Competition(GpuUse use) : use_(use), kernels_(use != GpuUse::copy_engines) {}

    GpuUse use() const { return use_; }
    // Whether kernels may be launched. Costs one load.
    bool kernels_allowed() const { return kernels_.load(std::memory_order_relaxed); }

    // Whether probes have seen another program, and how often that has begun.
    bool noticed() const;
    std::uint64_t times_noticed() const { return times_noticed_.value(); }

    // Reports that no kernel has ended for `slow`. Returns true if kernels are stopped now and
    // probes are needed.
    bool kernel_was_slow(Clock::time_point now);
    // The time from the last probe, or from the stop, to the next probe.
    Clock::duration until_probe() const;
    // Reports the duration of a probe while kernels are stopped. Returns true if kernels may be
    // launched again.
    bool probe_took(Clock::duration took, Clock::time_point now);

 private:
    const GpuUse use_;
    std::atomic<bool> kernels_;
    Counter times_noticed_;  // written with the mutex held
    mutable Mutex mutex_;
    Clock::time_point last_slow_ GUARDED_BY(mutex_){};
    Clock::time_point allowed_since_ GUARDED_BY(mutex_){};
    // Suspicions are ignored for so long after allowed_since_.
    Clock::duration trust_ GUARDED_BY(mutex_){};
    bool confirmed_ GUARDED_BY(mutex_) = false;   // a probe was slow since kernels were stopped
    std::uint32_t quiet_ GUARDED_BY(mutex_) = 0;  // consecutive probes that were not slow
    std::uint32_t wanted_ GUARDED_BY(mutex_) = min_quiet_probes;
};

const char* to_text(GpuUse use);

}  // namespace gpunbd::storage
