#include "storage/devices/vulkan/command_buffers.hpp"

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage::vulkan {

namespace {

VkPipelineStageFlags stages(bool computes) {
    return VK_PIPELINE_STAGE_TRANSFER_BIT |
           (computes ? VkPipelineStageFlags{VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT} : 0U);
}

VkAccessFlags reads(bool computes) {
    return VK_ACCESS_TRANSFER_READ_BIT | (computes ? VkAccessFlags{VK_ACCESS_SHADER_READ_BIT} : 0U);
}

VkAccessFlags writes(bool computes) {
    return VK_ACCESS_TRANSFER_WRITE_BIT |
           (computes ? VkAccessFlags{VK_ACCESS_SHADER_WRITE_BIT} : 0U);
}

}  // namespace

CommandBuffers::CommandBuffers(const LogicalDevice& device, std::uint32_t family,
                               std::uint32_t count)
    : device_(device),
      computes_((device.physical().queues[family].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0),
      buffers_(count) {
    VkCommandPoolCreateInfo pool{};
    pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    pool.queueFamilyIndex = family;
    const DeviceFunctions& call = device_.functions();
    require(call.CreateCommandPool(device_.get(), &pool, nullptr, &pool_),
            "no commands can be recorded");
    VkCommandBufferAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    info.commandPool = pool_;
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = count;
    const VkResult result = call.AllocateCommandBuffers(device_.get(), &info, buffers_.data());
    if (result == VK_SUCCESS) return;
    call.DestroyCommandPool(device_.get(), pool_, nullptr);
    require(result, "no commands can be recorded");
}

CommandBuffers::~CommandBuffers() {
    device_.functions().DestroyCommandPool(device_.get(), pool_, nullptr);
}

// The barrier waits for no command. It only drops what the caches of the device hold from before.
VkResult CommandBuffers::begin(std::uint32_t number, VkCommandBufferUsageFlags usage) const {
    VkCommandBufferBeginInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    info.flags = usage;
    const DeviceFunctions& call = device_.functions();
    const VkResult result = call.BeginCommandBuffer(buffers_[number], &info);
    if (result != VK_SUCCESS) return result;
    VkMemoryBarrier barrier{};
    barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    barrier.srcAccessMask = VK_ACCESS_HOST_WRITE_BIT;
    barrier.dstAccessMask = reads(computes_) | writes(computes_);
    call.CmdPipelineBarrier(buffers_[number], VK_PIPELINE_STAGE_HOST_BIT, stages(computes_), 0, 1,
                            &barrier, 0, nullptr, 0, nullptr);
    return VK_SUCCESS;
}

VkResult CommandBuffers::end(std::uint32_t number) const {
    VkMemoryBarrier barrier{};
    barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    barrier.srcAccessMask = writes(computes_);
    barrier.dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT;
    const DeviceFunctions& call = device_.functions();
    call.CmdPipelineBarrier(buffers_[number], stages(computes_), VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                            &barrier, 0, nullptr, 0, nullptr);
    return call.EndCommandBuffer(buffers_[number]);
}

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
