#include "storage/devices/vulkan/queue_plan.hpp"

#include <algorithm>

namespace gpunbd::storage::vulkan {

namespace {

constexpr int video = 3;

// Lower is better; families that decode or encode video are the last choice.
int rank(VkQueueFlags flags) {
    constexpr VkQueueFlags usual = VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT |
                                   VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_SPARSE_BINDING_BIT |
                                   VK_QUEUE_PROTECTED_BIT;
    if ((flags & ~usual) != 0) return video;
    if ((flags & VK_QUEUE_GRAPHICS_BIT) != 0) return 2;
    return (flags & VK_QUEUE_COMPUTE_BIT) != 0 ? 1 : 0;
}

}  // namespace

std::optional<std::uint32_t> choose_family(const std::vector<QueueTrial>& trials) {
    constexpr double much_faster = 2;
    QueueTrial chosen;
    for (const QueueTrial& trial : trials) {
        if (trial.rate > much_faster * chosen.rate) chosen = trial;
    }
    return chosen.rate > 0 ? std::optional(chosen.family) : std::nullopt;
}

QueuePlan plan_queues(const std::vector<VkQueueFamilyProperties>& families) {
    QueuePlan plan;
    const auto rank_of = [&](std::uint32_t family) { return rank(families[family].queueFlags); };
    for (std::uint32_t i = 0; i < families.size(); ++i) {
        const VkQueueFlags flags = families[i].queueFlags;
        // Families that draw or compute can copy, even without the flag.
        constexpr VkQueueFlags copies =
            VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT;
        if (families[i].queueCount == 0 || (flags & copies) == 0) continue;
        plan.copying.push_back(i);
        if ((flags & VK_QUEUE_COMPUTE_BIT) != 0 &&
            (!plan.computing || rank_of(i) < rank_of(*plan.computing))) {
            plan.computing = i;
        }
    }
    std::ranges::stable_sort(plan.copying, {}, rank_of);
    if (plan.copying.size() > 1 && rank_of(plan.copying.front()) < video) {
        std::erase_if(plan.copying, [&](std::uint32_t family) { return rank_of(family) == video; });
    }
    return plan;
}

}  // namespace gpunbd::storage::vulkan
