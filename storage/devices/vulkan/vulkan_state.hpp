// State that a Vulkan device shares with its channels.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/gpu_state.hpp"
#include "storage/devices/vulkan/logical_device.hpp"
#include "storage/devices/vulkan/slab_table.hpp"

namespace gpunbd::storage::vulkan {

class CopyShader;

struct VulkanState : GpuState {
    // Throws Unavailable.
    VulkanState(std::string device_id, GpuUse use, std::shared_ptr<const Instance> instance,
                const PhysicalDevice& physical);

    LogicalDevice device;
    SlabTable slabs;
    std::uint32_t copy_family = 0;  // the family of the queues that copy

    // A call failed that concerns the whole device or the operation `what`. Fails the device if it
    // is lost; otherwise logs the error.
    void report(VkResult error, std::string_view what) noexcept;
    // Sets the status of a copy that could not be started, and reports the error.
    void refuse(Copy& copy, VkResult error) noexcept;
};

}  // namespace gpunbd::storage::vulkan
