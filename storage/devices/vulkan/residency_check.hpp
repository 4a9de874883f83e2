#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <functional>
#include <string>

#include "storage/base/mutex.hpp"
#include "storage/devices/vulkan/command_buffers.hpp"
#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

// Times commands by the clock of the device. The time that the CPU needs to submit them and to
// notice their end is not included, so the load of the CPU does not matter.
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

// How fast the device fills memory, in bytes per tick of its clock.
struct FillRates {
    double local = 0;
    double host = 0;

    // Whether the speeds differ enough to distinguish the two kinds of memory.
    bool differ() const;
    bool is_host(double rate) const;
};

// Detects slabs that the driver has placed in host memory, although they were allocated as memory
// of the device: the device times how fast it fills them.
class ResidencyCheck {
 public:
    // Whether the driver places memory of the device in host memory without an error.
    static bool is_needed(const PhysicalDevice& physical);

    // Measures both kinds of memory. `queue` belongs to a family that computes, since transfer
    // queues are often no faster than the bus. `state` outlives this object. Throws
    // std::runtime_error.
    ResidencyCheck(VulkanState& state, Queue& queue);

    // False: all slabs pass.
    bool works() const { return rates_.differ(); }
    // Overwrites the buffer. Any thread.
    bool is_in_host_memory(VkBuffer buffer, std::uint64_t bytes);

 private:
    // The highest rate of several fills; 0: they fail.
    double measure(VkBuffer buffer, std::uint64_t bytes);

    VulkanState& state_;
    DeviceTimer timer_;
    FillRates rates_;
};

}  // namespace gpunbd::storage::vulkan
