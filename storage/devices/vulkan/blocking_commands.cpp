#include "storage/devices/vulkan/blocking_commands.hpp"

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage::vulkan {

BlockingCommands::BlockingCommands(VulkanState& state, Queue& queue)
    : buffers_(state.device, queue.family(), 1), ring_(state, queue, 1) {}

VkResult BlockingCommands::run(const std::function<void(VkCommandBuffer)>& record) {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(ring_.idle(), "commands have ended before their buffer is recorded again");
    VkResult result = buffers_.begin(0);
    if (result != VK_SUCCESS) return result;
    record(buffers_.at(0));
    result = buffers_.end(0);
    if (result != VK_SUCCESS) return result;
    ring_.close(buffers_.at(0));
    return ring_.wait();
}

}  // namespace gpunbd::storage::vulkan
