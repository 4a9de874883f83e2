// Replaces vulkan_memory.cpp in builds without Vulkan headers.
#include "storage/devices/cuda/vulkan/vulkan_memory.hpp"

namespace gpunbd::storage::vulkan {

std::unique_ptr<VulkanMemory> VulkanMemory::open(const Uuid&, std::string& reason) {
    reason = "this program was built without Vulkan headers";
    return nullptr;
}

}  // namespace gpunbd::storage::vulkan
