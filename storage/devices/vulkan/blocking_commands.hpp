// Commands outside of the path of requests: the caller waits for them.
#pragma once

#include <functional>

#include "storage/base/mutex.hpp"
#include "storage/devices/vulkan/command_buffers.hpp"
#include "storage/devices/vulkan/submission_ring.hpp"

namespace gpunbd::storage::vulkan {

class BlockingCommands {
 public:
    // Throws Unavailable. Both references outlive this.
    BlockingCommands(VulkanState& state, Queue& queue);

    // Records commands, submits them and waits until they have ended. Any thread.
    VkResult run(const std::function<void(VkCommandBuffer)>& record);

    // Asks the driver for their state without running any. An error means that the device is lost.
    VkResult query() const { return ring_.query(); }

 private:
    Mutex mutex_;
    CommandBuffers buffers_ GUARDED_BY(mutex_);
    SubmissionRing ring_;  // also used with the mutex held, except by query()
};

}  // namespace gpunbd::storage::vulkan
