// Stands in for vulkan_memory.cpp where there are no Vulkan headers.
#include "storage/devices/vulkan/vulkan_memory.hpp"

namespace gpunbd::storage::vulkan {

std::unique_ptr<VulkanMemory> VulkanMemory::open(const Uuid&, std::string& why_not) {
    why_not = "this program was built without Vulkan headers";
    return nullptr;
}

}  // namespace gpunbd::storage::vulkan
