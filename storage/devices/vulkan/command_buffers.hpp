// Command buffers for the queues of one family, and what all commands of this driver begin and end
// with.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/devices/vulkan/logical_device.hpp"
#include "storage/devices/vulkan/submission_ring.hpp"

namespace gpunbd::storage::vulkan {

class CommandBuffers {
 public:
    // Throws Unavailable.
    CommandBuffers(const LogicalDevice& device, std::uint32_t family, std::uint32_t count);
    CommandBuffers(const CommandBuffers&) = delete;
    CommandBuffers& operator=(const CommandBuffers&) = delete;
    ~CommandBuffers();  // none of them may be in use

    VkCommandBuffer at(std::uint32_t number) const { return buffers_[number]; }
    // Starts to record; what was recorded is lost. The commands see all earlier stores of the CPU
    // and of commands that were seen to end.
    VkResult begin(std::uint32_t number) const { return begin(number, one_time); }
    // The same for commands that are submitted more than once.
    VkResult begin_reusable(std::uint32_t number) const { return begin(number, 0); }
    // The CPU sees what the commands have stored once they are seen to end.
    VkResult end(std::uint32_t number) const;

 private:
    static constexpr VkCommandBufferUsageFlags one_time =
        VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    VkResult begin(std::uint32_t number, VkCommandBufferUsageFlags usage) const;

    const LogicalDevice& device_;
    const bool computes_;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    std::vector<VkCommandBuffer> buffers_;
};

// Commands outside of the path of requests: the caller waits for them.
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
