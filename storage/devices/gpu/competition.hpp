// Does another program compute on the GPU? A GPU gives whole time slices to one process at a time:
// then kernels of ours wait for theirs, and take it from the other. Copy engines do neither.
//
// Told by kernels that take far too long; asked by probes, which find out when it is over.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "storage/counter.hpp"

namespace gpunbd::storage {

enum class GpuUse : std::uint8_t {
    automatic,     // kernels as long as nobody else computes on the GPU
    copy_engines,  // never a kernel
    all,           // kernels whatever others do
};

// All calls from any thread; times are those of one clock that only grows.
class Competition {
 public:
    using Clock = std::chrono::steady_clock;

    // A kernel alone takes some 10 us; a time slice is some milliseconds long.
    static constexpr std::chrono::microseconds slow{200};
    static constexpr std::chrono::milliseconds window{10};  // two slow ones in it tell
    // Rare enough to cost the other program less than 0.5%: a slice taken for one costs it 0.3 ms.
    static constexpr std::chrono::milliseconds probe_interval{100};
    static constexpr std::uint32_t min_quiet_probes = 3;  // in a row: it is over
    static constexpr std::uint32_t max_quiet_probes = 24;
    // It has come back so soon: the next time it takes twice as many quiet probes to believe.
    static constexpr std::chrono::seconds relapse{1};
    // Nothing was found: a burst of our own, most likely. The next suspicion has to wait.
    static constexpr std::chrono::milliseconds min_trust{20};
    static constexpr std::chrono::milliseconds max_trust{1000};

    explicit Competition(GpuUse use) : use_(use), kernels_(use != GpuUse::copy_engines) {}

    GpuUse use() const { return use_; }
    // May kernels be launched? Costs a load.
    bool kernels_allowed() const { return kernels_.load(std::memory_order_relaxed); }

    // By the probes: does another program compute there now, and how often has that begun?
    bool noticed() const;
    std::uint64_t times_noticed() const { return times_noticed_.value(); }

    // A kernel has not ended for `slow`. true: kernels stop from now on, and probes are wanted.
    bool kernel_was_slow(Clock::time_point now);
    // How long after the last probe, or the stop, the next one is due.
    Clock::duration until_probe() const;
    // While kernels are stopped: a lone kernel took so long. true: they may be launched again.
    bool probe_took(Clock::duration took, Clock::time_point now);

 private:
    const GpuUse use_;
    std::atomic<bool> kernels_;
    Counter times_noticed_;     // written with the mutex held
    mutable std::mutex mutex_;  // guards what follows
    Clock::time_point last_slow_{};
    Clock::time_point allowed_since_{};
    Clock::duration trust_{};  // for so long after allowed_since_ slowness tells nothing
    bool confirmed_ = false;   // by a slow probe, since the stop
    std::uint32_t quiet_ = 0;  // probes in a row that were not slow
    std::uint32_t wanted_ = min_quiet_probes;
};

const char* to_text(GpuUse use);

}  // namespace gpunbd::storage
