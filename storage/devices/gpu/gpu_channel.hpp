// One worker's way to one GPU, whatever drives it. Between two polls copies gather; at the second
// each is given to the path that the policy names, and paths tell which have ended. Where another
// program computes on the GPU, none goes by a kernel. Nothing here waits or allocates.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/copy_path.hpp"
#include "storage/devices/gpu/gpu_state.hpp"
#include "storage/devices/gpu/policy.hpp"
#include "storage/devices/gpu/slow_kernels.hpp"

namespace gpunbd::storage {

// Those of one channel.
struct CopyPaths {
    CopyPath* cpu = nullptr;
    CopyPath* copy_engine = nullptr;  // takes every copy
    CopyPath* engine_batch = nullptr;
    CopyPath* kernel = nullptr;
    LingeringPath* persistent_kernel = nullptr;
};

class GpuChannel : public Channel {
 public:
    // Not while copies are in flight.
    void set_policy(const Policy& policy);

    bool sends_from(const Slab&, std::uint32_t) const override { return false; }

 protected:
    // `state` outlives the channel.
    GpuChannel(const ChannelOptions& options, GpuState& state, const Policy& policy);

    // Before the first copy; they live as long as copies may be in flight.
    void use(const CopyPaths& paths);
    const Policy& policy() const { return policy_; }

    void progress(CopyQueue& queued) override;

 private:
    // Copies that wait to be given to a path.
    struct Waiting {
        CopyQueue copies;
        std::uint32_t count = 0;
        std::uint64_t bytes = 0;

        void push(Copy& copy);
        Copy* pop();
    };

    // They are slow, and no more are launched until somebody finds out that they may be.
    virtual void kernels_stopped() = 0;

    void sort(CopyQueue& queued);
    void submit(Waiting& waiting);
    bool kernels_idle() const;
    Load load_of(const Waiting& waiting) const;
    // `waiting_bytes`: of all copies that wait with this one.
    PathKind choose(const Copy& copy, Load load, std::uint64_t waiting_bytes);
    CopyPath& path(PathKind kind);

    void collect();
    void finish_all(CopyQueue& ended);
    // Now and then: has the device failed, do others compute on it?
    void look_around();
    void fail_everything(CopyQueue& queued);

    GpuState& state_;
    Policy policy_;
    std::uint32_t max_for_kernel_ = 0;
    CopyPaths paths_;
    std::array<CopyPath*, 5> in_turn_{};  // all of them, small copies first

    Waiting small_reads_;
    Waiting small_writes_;  // and zeroes
    Waiting long_;

    bool passed_by_ = false;  // a copy is on its way that found the persistent kernel gone
    bool failure_logged_ = false;
    std::uint32_t polls_ = 0;
    std::chrono::steady_clock::time_point looked_{};
    SlowKernels slow_kernels_;
};

}  // namespace gpunbd::storage
