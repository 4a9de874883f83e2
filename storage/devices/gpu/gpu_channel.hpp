#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "storage/devices/channel.hpp"
#include "storage/devices/competition.hpp"
#include "storage/devices/gpu/copy_path.hpp"
#include "storage/devices/gpu/gpu_state.hpp"
#include "storage/devices/gpu/managed_path.hpp"
#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage {

// Detects kernels of one channel that have to wait for another program, by the time since one has
// last ended.
class SlowKernels {
 public:
    // A kernel has ended.
    void ended() { ++ends_; }
    // Called from time to time; `idle`: no copy is in flight. Returns true once for each time that
    // no kernel has ended for Competition::slow.
    bool seen(bool idle, Competition::Clock::time_point now) {
        if (idle || ends_ != ends_seen_) {
            ends_seen_ = ends_;
            no_end_since_ = now;
            return false;
        }
        if (now - no_end_since_ < Competition::slow) return false;
        no_end_since_ = now;
        return true;
    }

 private:
    std::uint64_t ends_ = 0;
    std::uint64_t ends_seen_ = 0;
    Competition::Clock::time_point no_end_since_{};
};

// Counts the threads whose recent writes GPUs have fetched, over all GPUs, since all of them snoop
// the same caches.

// Counts the calling thread in the current period of two milliseconds, and returns how many threads
// were counted in the period before. Any thread; does not block.
std::uint32_t count_writer(std::chrono::steady_clock::time_point now);

// The paths of one channel.
struct CopyPaths {
    CopyPath* cpu = nullptr;
    CopyPath* copy_engine = nullptr;  // takes every copy
    CopyPath* engine_batch = nullptr;
    CopyPath* kernel = nullptr;
    LingeringPath* persistent_kernel = nullptr;
};

// One worker's channel to one GPU, for any driver. Copies gather between two polls. The next poll
// gives each copy to the path that the policy selects. While another program computes on the GPU,
// no kernels are used. Nothing here blocks or allocates.
class GpuChannel : public Channel {
 public:
    void set_policy(const Policy& policy);

 protected:
    // `state` outlives the channel.
    GpuChannel(const ChannelOptions& options, GpuState& state, const Policy& policy);

    // Called before the first copy. The paths outlive all copies in flight.
    void use(const CopyPaths& paths);
    const Policy& policy() const { return policy_; }

    void progress(CopyQueue& queued) override;

 private:
    // Copies that have not been given to a path yet.
    struct Waiting {
        CopyQueue copies;
        std::uint32_t count = 0;
        std::uint64_t bytes = 0;

        void push(Copy& copy);
        Copy* pop();
    };

    // Kernels are too slow, and are not launched again until this has found out that they may be.
    virtual void kernels_stopped() = 0;

    void sort(CopyQueue& queued);
    void submit(Waiting& waiting);
    bool kernels_idle() const;
    Load load_of(const Waiting& waiting) const;
    // `waiting_bytes` is the sum of all copies that wait with this one.
    PathKind choose(const Copy& copy, Load load, std::uint64_t waiting_bytes);
    CopyPath& path(PathKind kind);

    void collect();
    void finish_all(CopyQueue& ended);
    // Called from time to time: checks for device failure and for other programs on the GPU.
    void check_state();
    void fail_everything(CopyQueue& queued);

    GpuState& state_;
    Policy policy_;
    std::uint32_t max_for_kernel_ = 0;
    CopyPaths paths_;
    ManagedPath managed_;
    std::array<CopyPath*, 6> in_turn_{};  // all paths, those for small copies first

    Waiting urgent_;
    Waiting small_reads_;
    Waiting small_writes_;  // also zeroes
    Waiting long_;

    const Copy* revocable_ = nullptr;  // of revocable memory, in flight on the GPU
    std::chrono::steady_clock::time_point revocable_since_{};

    bool bypassing_ = false;  // a copy is in flight that found the persistent kernel asleep
    bool failure_logged_ = false;
    std::uint32_t polls_ = 0;
    std::chrono::steady_clock::time_point looked_{};
    SlowKernels slow_kernels_;
};

}  // namespace gpunbd::storage
