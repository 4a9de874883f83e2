// One worker's channel to one Vulkan device: its paths and their memory. Completion is seen by
// reading the values of timeline semaphores.
#pragma once

#include <optional>

#include "storage/devices/device.hpp"
#include "storage/devices/gpu/competition_watch.hpp"
#include "storage/devices/gpu/copy_path.hpp"
#include "storage/devices/gpu/gpu_channel.hpp"
#include "storage/devices/vulkan/shader_path.hpp"
#include "storage/devices/vulkan/staging_memory.hpp"
#include "storage/devices/vulkan/transfer_path.hpp"
#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

// The queues of one channel, which may share them with others.
struct ChannelQueues {
    Queue& reads;
    Queue& writes;
    Queue* computing = nullptr;  // null: the device has no shader
};

class VulkanChannel final : public GpuChannel {
 public:
    // Throws std::runtime_error. All references outlive the channel, as does `shader`, which
    // may be null.
    VulkanChannel(const ChannelOptions& options, VulkanState& state, CompetitionWatch& watch,
                  const CopyShader* shader, const ChannelQueues& queues, const Policy& policy);

    bool receives_into(const Slab& slab, std::uint32_t length) const override;
    // The threads of an implementation on the CPU make its copies.
    bool waits_for_threads() const override {
        return state_.device.physical().on_cpu() && unfinished() != 0;
    }

 private:
    void kernels_stopped() override { watch_.begin(); }

    VulkanState& state_;
    CompetitionWatch& watch_;
    StagingMemory staging_;
    // Paths are destroyed before the memory that copies in flight use, and wait for these copies.
    CpuPath cpu_;
    AbsentPath absent_;
    TransferPath transfer_;
    std::optional<ShaderPath> shader_;
};

}  // namespace gpunbd::storage::vulkan
