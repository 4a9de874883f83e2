// Chooses the memory types of a device.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <optional>

namespace gpunbd::storage::vulkan {

struct MemoryPlan {
    std::uint32_t heap = 0;   // the largest device-local one
    std::uint64_t bytes = 0;  // of that heap
    std::uint32_t local_type = 0;
    // Memory of the same heap that the CPU can address, coherent. Empty: there is none. A window to
    // a part of the memory is another heap, which drivers fill up from host memory unnoticed.
    std::optional<std::uint32_t> mapped_type;
    bool cached = false;  // by the CPU: mapped_type is as fast as host memory
    // Cached and coherent host memory, for staging. Empty: there is none.
    std::optional<std::uint32_t> staging_type;
};

// `usable`: a bit for each memory type that buffers can have. Empty: no memory is device-local.
std::optional<MemoryPlan> plan_memory(const VkPhysicalDeviceMemoryProperties& memory,
                                      std::uint32_t usable);

// A type among `usable` for host memory that the CPU caches, not device-local if possible.
std::optional<std::uint32_t> cached_host_type(const VkPhysicalDeviceMemoryProperties& memory,
                                              std::uint32_t usable);

}  // namespace gpunbd::storage::vulkan
