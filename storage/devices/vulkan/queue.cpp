#include "storage/devices/vulkan/queue.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "storage/assertions/assert.hpp"

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

constexpr std::uint32_t most_at_once = 32;  // submissions in one call

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

void Queue::add(Submission& submission) noexcept {
    GPUNBD_ASSERT(submission.outcome.load(std::memory_order_relaxed) != VK_NOT_READY,
                  "commands are submitted before they are added again");
    GPUNBD_ASSERT(submission.commands != nullptr && submission.semaphore != VK_NULL_HANDLE,
                  "a submission has commands and a semaphore that counts them");
    submission.outcome.store(VK_NOT_READY, std::memory_order_relaxed);
    submission.next = added_.load(std::memory_order_relaxed);
    while (!added_.compare_exchange_weak(submission.next, &submission)) {
    }
}

void Queue::submit() noexcept {
    while (added_.load() != nullptr) {
        if (submitting_.exchange(true)) return;  // that thread looks again before it returns
        while (Submission* const first = take_all()) submit_all(first);
        submitting_.store(false);
    }
}

Submission* Queue::take_all() noexcept {
    Submission* last = added_.exchange(nullptr);
    Submission* first = nullptr;
    while (last != nullptr) {
        Submission* const previous = std::exchange(last->next, first);
        first = std::exchange(last, previous);
    }
    return first;
}

void Queue::submit_all(Submission* first) noexcept {
    while (first != nullptr) {
        std::array<VkTimelineSemaphoreSubmitInfo, most_at_once> values{};
        std::array<VkSubmitInfo, most_at_once> infos{};
        std::uint32_t count = 0;
        Submission* next = first;
        for (; next != nullptr && count != most_at_once; next = next->next, ++count) {
            values[count].sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
            values[count].signalSemaphoreValueCount = 1;
            values[count].pSignalSemaphoreValues = &next->value;
            infos[count].sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
            infos[count].pNext = &values[count];
            infos[count].commandBufferCount = 1;
            infos[count].pCommandBuffers = &next->commands;
            infos[count].signalSemaphoreCount = 1;
            infos[count].pSignalSemaphores = &next->semaphore;
        }
        const VkResult result = functions_.QueueSubmit(queue_, count, infos.data(), VK_NULL_HANDLE);
        while (first != next) {
            Submission* const submitted = std::exchange(first, first->next);
            submitted->outcome.store(result, std::memory_order_release);
        }
    }
}

}  // namespace gpunbd::storage::vulkan
