// The compute shader that gathers and scatters copies, ready to be bound.
#pragma once

#include <vulkan/vulkan.h>

#include "storage/devices/vulkan/logical_device.hpp"

namespace gpunbd::storage::vulkan {

class CopyShader {
 public:
    // The device has addresses and outlives the shader. Throws Unavailable.
    explicit CopyShader(const LogicalDevice& device);
    CopyShader(const CopyShader&) = delete;
    CopyShader& operator=(const CopyShader&) = delete;
    ~CopyShader();

    // Records its run over `count` units of an array at this address.
    void record(VkCommandBuffer commands, VkDeviceAddress units, std::uint32_t count) const;

 private:
    VkResult create();

    const LogicalDevice& device_;
    VkPipelineLayout layout_ = VK_NULL_HANDLE;
    VkPipeline pipeline_ = VK_NULL_HANDLE;
};

}  // namespace gpunbd::storage::vulkan
