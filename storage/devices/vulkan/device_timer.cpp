#include "storage/devices/vulkan/device_timer.hpp"

#include <algorithm>
#include <array>

namespace gpunbd::storage::vulkan {

namespace {

std::uint64_t valid_bits(const PhysicalDevice& physical, std::uint32_t family) {
    const std::uint32_t count = physical.queues[family].timestampValidBits;
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

}  // namespace

DeviceTimer::DeviceTimer(VulkanState& state, Queue& queue)
    : device_(state.device),
      valid_bits_(valid_bits(device_.physical(), queue.family())),
      commands_(state, queue) {
    const VkQueryPoolCreateInfo info{
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .pNext = nullptr,
        .flags = 0,
        .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = 2,
        .pipelineStatistics = 0,
    };
    if (valid_bits_ == 0) return;
    require(device_.functions().CreateQueryPool(device_.get(), &info, nullptr, &pool_),
            "no timestamps");
}

DeviceTimer::~DeviceTimer() { device_.functions().DestroyQueryPool(device_.get(), pool_, nullptr); }

std::uint64_t DeviceTimer::time(const std::function<void(VkCommandBuffer)>& record) {
    if (valid_bits_ == 0) return 0;
    const DeviceFunctions& functions = device_.functions();
    const Lock lock(mutex_);
    const VkResult result = commands_.run([&](VkCommandBuffer commands) {
        functions.CmdResetQueryPool(commands, pool_, 0, 2);
        // Written once all earlier commands of the queue have ended.
        functions.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool_, 0);
        record(commands);
        functions.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool_, 1);
    });
    return result == VK_SUCCESS ? elapsed() : 0;
}

std::uint64_t DeviceTimer::elapsed() const {
    std::array<std::uint64_t, 2> at{};
    const VkResult result = device_.functions().GetQueryPoolResults(
        device_.get(), pool_, 0, 2, sizeof at, at.data(), sizeof at[0], VK_QUERY_RESULT_64_BIT);
    if (result != VK_SUCCESS) return 0;
    return std::max<std::uint64_t>(1, (at[1] - at[0]) & valid_bits_);
}

}  // namespace gpunbd::storage::vulkan
