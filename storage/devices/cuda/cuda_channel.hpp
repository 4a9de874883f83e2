// One worker's way to one GPU. Between two polls copies gather; at the second each takes the path
// that the policy names: small ones together in one kernel, long ones through the copy engines, a
// few by the CPU itself. Where another program computes on the GPU, none goes by a kernel. Ends are
// seen by polling words in pinned memory; nothing here waits, allocates, or depends on a host
// callback.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "storage/devices/cuda/competition_watch.hpp"
#include "storage/devices/cuda/copy_kernel.hpp"
#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"
#include "storage/devices/cuda/persistent_copier.hpp"
#include "storage/devices/cuda/stream_counter.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage::cuda {

class CudaChannel final : public Channel {
 public:
    // Throws std::runtime_error. `state` and `watch` outlive the channel.
    CudaChannel(const ChannelOptions& options, DeviceState& state, CompetitionWatch& watch,
                const Policy& policy, MailboxMemory mailbox);
    // Waits for copies in flight, which still touch the channel's staging memory.
    ~CudaChannel() override;

    // Not while copies are in flight.
    void set_policy(const Policy& policy);

    bool receives_into(const Slab& slab, std::uint32_t length) const override;
    bool sends_from(const Slab&, std::uint32_t) const override { return false; }

 protected:
    void progress(CopyQueue& queued) override;

 private:
    // Copies that wait to be submitted.
    struct Waiting {
        CopyQueue copies;
        std::uint32_t count = 0;
        std::uint64_t bytes = 0;

        void push(Copy& copy);
        Copy* pop();
    };
    // One kernel launch in the making: copies lie in the stream's open group.
    struct Batch {
        StreamCounter* stream = nullptr;  // null: none is being made
        std::uint32_t count = 0;
        std::array<CopyUnit, max_copy_units> units{};
    };

    // One call of a copy engine in the making: its copies lie in the engine's open group.
    struct EngineBatch {
        static constexpr std::size_t max = 32;  // long ones keep the answers of their first waiting

        std::size_t count = 0;
        std::array<CUdeviceptr, max> to{};
        std::array<CUdeviceptr, max> from{};
        std::array<std::size_t, max> lengths{};
    };

    static constexpr std::size_t kernel_streams = 4;
    static constexpr std::uint32_t launches_per_stream = 2;  // the second starts as the first ends
    enum Engine : std::size_t { to_host, to_device, zeroing, engines };
    static Engine engine_of(Copy::Kind kind);

    void warm_up();

    void sort(CopyQueue& queued);
    Load load_of(const Waiting& waiting) const;
    bool kernels_idle() const;
    void submit(Waiting& waiting);
    // `waiting_bytes`: of all copies that wait with this one.
    PathKind path_of(const Copy& copy, Load load, std::uint64_t waiting_bytes);
    bool has_place(const Copy& copy, PathKind path);
    void copy_by_cpu(Copy& copy);
    void add_to_engine(Copy& copy);
    cudaError_t start_on_engine(const Copy& copy, cudaStream_t stream) const;
    std::uint32_t longest_in_batch() const;  // bytes of one copy
    void add_to_engine_batch(Copy& copy);
    void start_engine_batch(Engine engine);
    void close_group(Engine engine);
    // False: there is none now.
    bool make_place_in_batch(const Copy& copy);
    void add_to_batch(Copy& copy);
    void post_to_persistent_kernel();
    // A copy that had found the kernel gone has ended.
    void wake_persistent_kernel();
    // The persistent kernel could not be launched: nothing serves what has been posted, nor what
    // will be.
    void fail_persistent_kernel(cudaError_t error);
    StreamCounter* free_kernel_stream();
    void launch_batch();
    // The copy could not be started.
    void refuse(Copy& copy, cudaError_t error, cudaStream_t stream);

    void collect();
    void finish_all(CopyQueue& ended);
    // Now and then: has the device failed, do others compute on it?
    void look_around();
    void look_for_errors(std::chrono::steady_clock::time_point now);
    void look_for_competition(std::chrono::steady_clock::time_point now);
    void fail_everything(CopyQueue& queued);

    DeviceState& state_;
    CompetitionWatch& watch_;
    Policy policy_;
    std::uint32_t max_for_kernel_ = 0;
    bool has_engine_batch_;
    PinnedMemory staging_;
    PinnedMemory words_;
    DeviceMemory scratch_;
    const bool has_persistent_kernel_;
    PersistentCopier persistent_;
    std::array<StreamCounter, kernel_streams> kernels_;
    std::array<StreamCounter, engines> engines_;

    Waiting small_reads_;
    Waiting small_writes_;  // and zeroes
    Waiting long_;
    Batch batch_;
    std::array<EngineBatch, engines> engine_batches_;
    std::array<std::uint32_t, engines> open_bytes_{};  // in the engines' open groups

    bool slept_through_ = false;  // a copy is on its way that found the persistent kernel gone
    bool wakes_persistent_kernel_ = false;                 // at its end
    std::chrono::steady_clock::time_point slept_until_{};  // the end of the last such copy

    bool failure_logged_ = false;
    std::uint32_t polls_ = 0;
    std::chrono::steady_clock::time_point looked_{};
    // What kernels have ended, as a number that only grows; the last time it was looked at, and
    // since when it has been that.
    std::uint64_t kernel_ends_ = 0;
    std::uint64_t kernel_ends_seen_ = 0;
    std::chrono::steady_clock::time_point no_end_since_{};
};

}  // namespace gpunbd::storage::cuda
