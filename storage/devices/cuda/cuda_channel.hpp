// One worker's channel to one CUDA device: its paths and their memory. Completion is seen by
// polling words in pinned memory, without host callbacks.
#pragma once

#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"
#include "storage/devices/cuda/engine_path.hpp"
#include "storage/devices/cuda/engine_streams.hpp"
#include "storage/devices/cuda/kernel_path.hpp"
#include "storage/devices/cuda/persistent_kernel_path.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/gpu/competition_watch.hpp"
#include "storage/devices/gpu/copy_path.hpp"
#include "storage/devices/gpu/gpu_channel.hpp"

namespace gpunbd::storage::cuda {

class CudaChannel final : public GpuChannel {
 public:
    // Throws std::runtime_error. `state` and `watch` outlive the channel.
    CudaChannel(const ChannelOptions& options, DeviceState& state, CompetitionWatch& watch,
                const Policy& policy, MailboxMemory mailbox);

    bool receives_into(const Slab& slab, std::uint32_t length) const override;

 private:
    void kernels_stopped() override { watch_.begin(); }

    void warm_up();
    // Blocks until the copy has ended. False: it could not be started.
    bool try_engine(CopyPath& path, Copy& copy);

    DeviceState& state_;
    CompetitionWatch& watch_;
    PinnedMemory staging_;
    PinnedMemory words_;
    DeviceMemory scratch_;
    // Streams are destroyed before the memory that copies in flight use, and wait for these copies.
    CpuPath cpu_;
    PersistentKernelPath persistent_kernel_;
    KernelPath kernel_;
    EngineStreams engine_streams_;
    EnginePath engine_;
    EngineBatchPath engine_batch_;
};

}  // namespace gpunbd::storage::cuda
