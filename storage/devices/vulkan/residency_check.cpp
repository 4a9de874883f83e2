#include "storage/devices/vulkan/residency_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "storage/devices/vulkan/staging_memory.hpp"

namespace gpunbd::storage::vulkan {

namespace {

std::uint64_t valid_bits(const PhysicalDevice& physical, std::uint32_t family) {
    const std::uint32_t count = physical.queues[family].timestampValidBits;
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

constexpr std::uint64_t timed_bytes = 16 << 20;
constexpr std::uint64_t least_bytes =
    4 << 20;  // a shorter fill takes little longer than an empty one
constexpr int fills = 3;
// The bus is at least ten times as slow as the memory of most cards.
constexpr double least_ratio = 3;

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

bool FillRates::differ() const { return host > 0 && local >= least_ratio * host; }

bool FillRates::is_host(double rate) const {
    return differ() && rate > 0 && rate < std::sqrt(local * host);
}

// The kernel drivers of AMD and Intel move memory under pressure. NVIDIA's returns an error.
bool ResidencyCheck::is_needed(const PhysicalDevice& physical) {
    return physical.type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU &&
           physical.driver_id != VK_DRIVER_ID_NVIDIA_PROPRIETARY;
}

ResidencyCheck::ResidencyCheck(VulkanState& state, Queue& queue)
    : state_(state), timer_(state, queue) {
    Buffer local;
    require(Buffer::make(state.device,
                         {.bytes = timed_bytes, .type = state.device.memory().local_type}, local),
            "no memory to be timed");
    rates_.local = measure(local.get(), timed_bytes);
    const StagingMemory host(state.device, timed_bytes);
    rates_.host = measure(host.buffer(), timed_bytes);
}

bool ResidencyCheck::is_in_host_memory(VkBuffer buffer, std::uint64_t bytes) {
    if (!works() || bytes < least_bytes) return false;
    return rates_.is_host(measure(buffer, std::min(bytes, timed_bytes)));
}

double ResidencyCheck::measure(VkBuffer buffer, std::uint64_t bytes) {
    double best = 0;
    for (int i = 0; i < fills; ++i) {
        const std::uint64_t ticks = timer_.time([&](VkCommandBuffer commands) {
            state_.device.functions().CmdFillBuffer(commands, buffer, 0, bytes, 0);
        });
        if (ticks == 0) return 0;
        best = std::max(best, static_cast<double>(bytes) / static_cast<double>(ticks));
    }
    return best;
}

}  // namespace gpunbd::storage::vulkan
