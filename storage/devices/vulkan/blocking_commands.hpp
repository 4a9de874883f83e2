// Commands outside of the path of requests: the caller waits for them.
#pragma once

#include <functional>
#include <mutex>

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
    std::mutex mutex_;  // guards the following members
    CommandBuffers buffers_;
    SubmissionRing ring_;
};

}  // namespace gpunbd::storage::vulkan
