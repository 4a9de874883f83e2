#include "storage/devices/vulkan/queue.hpp"

#include <array>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::uint32_t most_at_once = 32;  // submissions in one call

}  // namespace

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
