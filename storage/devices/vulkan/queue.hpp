#pragma once

#include <vulkan/vulkan.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "storage/devices/vulkan/device_functions.hpp"

namespace gpunbd::storage::vulkan {

// Chooses the queue families of a device.
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

// Commands that signal a timeline semaphore when they have ended.
struct Submission {
    VkCommandBuffer commands = nullptr;
    VkSemaphore semaphore = VK_NULL_HANDLE;
    std::uint64_t value = 0;
    // VK_NOT_READY from add() until it has been submitted; then VK_SUCCESS, or the error that
    // submitting it returned. With another value, the queue does not use this object.
    std::atomic<VkResult> outcome{VK_SUCCESS};
    Submission* next = nullptr;  // used by the queue
};

// A queue of the device, which any number of threads share without a lock: the thread that is
// submitting also submits what others have added meanwhile, and they return at once.
class Queue {
 public:
    Queue(const DeviceFunctions& functions, VkQueue queue, std::uint32_t family)
        : functions_(functions), queue_(queue), family_(family) {}
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    std::uint32_t family() const { return family_; }
    // Any thread. Submissions of one thread are submitted in the order in which they were added.
    // submit() has to follow.
    void add(Submission& submission) noexcept;
    // Submits what has been added, unless another thread does.
    void submit() noexcept;

 private:
    // In the order of add().
    Submission* take_all() noexcept;
    void submit_all(Submission* first) noexcept;

    const DeviceFunctions& functions_;
    const VkQueue queue_;
    const std::uint32_t family_;
    std::atomic<Submission*> added_{nullptr};  // the last one first
    std::atomic<bool> submitting_{false};
};

}  // namespace gpunbd::storage::vulkan
