// Checks that a queue copies, and how fast: some drivers list queues that do not work or are slow.
#pragma once

#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

// Copies a pattern to the device and back, compares it, and returns the rate of the way back in
// bytes per second. Throws Unavailable with the reason if the queue does not copy.
double copy_rate(VulkanState& state, Queue& queue);

}  // namespace gpunbd::storage::vulkan
