// Detects slabs that the driver has placed in host memory, although they were allocated as memory
// of the device: the device times how fast it fills them.
#pragma once

#include <cstdint>
#include <string>

#include "storage/devices/vulkan/device_timer.hpp"
#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

// How fast the device fills memory, in bytes per tick of its clock.
struct FillRates {
    double local = 0;
    double host = 0;

    // Whether the speeds differ enough to distinguish the two kinds of memory.
    bool differ() const;
    bool is_host(double rate) const;
};

class ResidencyCheck {
 public:
    // Whether the driver places memory of the device in host memory without an error.
    static bool is_needed(const PhysicalDevice& physical);

    // Measures both kinds of memory. `queue` belongs to a family that computes, since transfer
    // queues are often no faster than the bus. `state` outlives this object. Throws
    // std::runtime_error.
    ResidencyCheck(VulkanState& state, Queue& queue);

    // False: all slabs pass.
    bool works() const { return rates_.differ(); }
    // Overwrites the buffer. Any thread.
    bool is_in_host_memory(VkBuffer buffer, std::uint64_t bytes);

 private:
    // The highest rate of several fills; 0: they fail.
    double measure(VkBuffer buffer, std::uint64_t bytes);

    VulkanState& state_;
    DeviceTimer timer_;
    FillRates rates_;
};

}  // namespace gpunbd::storage::vulkan
