// Times commands by the clock of the device. The time that the CPU needs to submit them and to
// notice their end is not included, so the load of the CPU does not matter.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <functional>

#include "storage/base/mutex.hpp"
#include "storage/devices/vulkan/blocking_commands.hpp"
#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

class DeviceTimer {
 public:
    // Runs its commands on `queue`. Throws Unavailable. Both references outlive this.
    DeviceTimer(VulkanState& state, Queue& queue);
    DeviceTimer(const DeviceTimer&) = delete;
    DeviceTimer& operator=(const DeviceTimer&) = delete;
    ~DeviceTimer();

    // Runs commands and waits for them. Returns their time in ticks of the device, at least 1.
    // 0: they failed, or the queue has no clock. Any thread.
    std::uint64_t time(const std::function<void(VkCommandBuffer)>& record);

 private:
    std::uint64_t elapsed() const;

    const LogicalDevice& device_;
    const std::uint64_t valid_bits_;  // of a timestamp; 0: the queue has no clock
    BlockingCommands commands_;
    Mutex mutex_;  // held while the two timestamps of the pool are in use
    VkQueryPool pool_ = VK_NULL_HANDLE;
};

}  // namespace gpunbd::storage::vulkan
