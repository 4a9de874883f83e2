#include "storage/devices/vulkan/residency_check.hpp"

#include <algorithm>
#include <cmath>

#include "storage/devices/vulkan/staging_memory.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::uint64_t timed_bytes = 16 << 20;
constexpr std::uint64_t least_bytes =
    4 << 20;  // a shorter fill takes little longer than an empty one
constexpr int fills = 3;
// The bus is at least ten times as slow as the memory of most cards.
constexpr double least_ratio = 3;

}  // namespace

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
