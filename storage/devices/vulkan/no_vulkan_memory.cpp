// Stands in for vulkan_memory.cpp where there are no Vulkan headers.
#include "storage/devices/vulkan/vulkan_memory.hpp"

namespace gpunbd::storage::vulkan {

VulkanOpening::VulkanOpening() = default;
VulkanOpening::~VulkanOpening() = default;

std::unique_ptr<VulkanMemory> VulkanOpening::finish(std::string& why_not) {
    why_not = "this program was built without Vulkan headers";
    return nullptr;
}

}  // namespace gpunbd::storage::vulkan
