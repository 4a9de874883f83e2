#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/devices/vulkan/base/instance.hpp"

namespace gpunbd::storage::vulkan {

// The ids of Vulkan devices (see gpu_id.hpp) by other names.

// For other programs' names of a device, in lower case: "amd0" -> "vulkan:0"; empty if unknown.
std::string guess_id(std::string_view text);

// DeviceInfo::identity, which is also an id, from DeviceInfo::hardware. It is not that of the same
// card as a CUDA device, whose kept contents are other memory.
std::string identity_of(std::string_view hardware);

// Chooses the memory types of a device.
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

// What the Vulkan driver reports about a GPU, or about its implementation on the CPU.
struct PhysicalDevice {
    VkPhysicalDevice handle = nullptr;
    std::uint32_t number = 0;  // N of vulkan:N
    std::string name;          // "AMD Radeon RX 7900 XTX (RADV NAVI31)"
    VkDriverId driver_id{};
    std::string driver;  // "radv, Mesa 24.2.8"
    Uuid uuid{};
    std::string address;  // PCI address; empty: unknown
    std::uint32_t version = 0;
    VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER;
    std::uint32_t max_allocations = 0;
    std::uint64_t max_allocation_bytes = 0;
    std::uint64_t host_import_alignment = 0;  // 0: host memory cannot be imported
    bool timeline_semaphores = false;
    bool device_addresses = false;
    VkPhysicalDeviceMemoryProperties memory{};
    std::vector<VkQueueFamilyProperties> queues;
    std::vector<std::string> extensions;

    bool on_cpu() const { return type == VK_PHYSICAL_DEVICE_TYPE_CPU; }
    // Its memory is that of the system.
    bool shares_system_memory() const {
        return on_cpu() || type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    }
    bool has(const char* extension) const;
    // Why it cannot be used, in one phrase; empty: it can.
    std::string reason_unusable() const;
};

// In the driver's order, which numbers them. Throws Unavailable.
std::vector<PhysicalDevice> physical_devices(const Instance& instance);

}  // namespace gpunbd::storage::vulkan
