// What the Vulkan driver reports about a GPU, or about its implementation on the CPU.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <string>
#include <vector>

#include "storage/devices/vulkan/base/instance.hpp"

namespace gpunbd::storage::vulkan {

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
