// Chooses the queue families of a device.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace gpunbd::storage::vulkan {

struct QueuePlan {
    // The families that can copy, the preferred one first: those that do nothing else, those that
    // also compute, those that also draw. Families for video only if there are no others.
    std::vector<std::uint32_t> copying;
    // The family for shaders, preferably one that does not draw. Empty: none computes.
    std::optional<std::uint32_t> computing;
};

// The result of copies through the queues of one family.
struct QueueTrial {
    std::uint32_t family = 0;
    double rate = 0;  // bytes per second; 0: they do not copy
};

// The first family that copies, unless a later one is much faster: the queues that only copy are
// slow with some drivers. Empty: none copies.
std::optional<std::uint32_t> choose_family(const std::vector<QueueTrial>& trials);

QueuePlan plan_queues(const std::vector<VkQueueFamilyProperties>& families);

}  // namespace gpunbd::storage::vulkan
