// A device that has been opened through Vulkan, with its queues.
#pragma once

#include <vulkan/vulkan.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "storage/devices/vulkan/base/instance.hpp"
#include "storage/devices/vulkan/device_functions.hpp"
#include "storage/devices/vulkan/physical_device.hpp"
#include "storage/devices/vulkan/queue.hpp"

namespace gpunbd::storage::vulkan {

class LogicalDevice {
 public:
    // Throws Unavailable.
    LogicalDevice(std::shared_ptr<const Instance> instance, const PhysicalDevice& physical);
    LogicalDevice(const LogicalDevice&) = delete;
    LogicalDevice& operator=(const LogicalDevice&) = delete;
    ~LogicalDevice();

    VkDevice get() const { return device_; }
    const DeviceFunctions& functions() const { return functions_; }
    const PhysicalDevice& physical() const { return physical_; }
    const MemoryPlan& memory() const { return memory_; }
    const QueuePlan& plan() const { return plan_; }
    bool exports_memory() const { return functions_.GetMemoryFdKHR != nullptr; }

    // The queues of a family of the plan; at least one.
    std::deque<Queue>& queues(std::uint32_t family) { return queues_[family]; }
    // The families of all queues, for buffers that they share.
    const std::vector<std::uint32_t>& families() const { return families_; }

    // Whether the driver reports the memory of its heap that can still be allocated.
    bool tells_free_memory() const { return budget_ != nullptr; }
    std::uint64_t free_memory() const;  // bytes

    // Counts an allocation. False: the driver allows no more.
    bool take_allocation();
    void give_allocation_back() { allocations_left_.fetch_add(1); }

 private:
    void create();
    std::uint32_t queue_count(std::uint32_t family) const;

    const std::shared_ptr<const Instance> instance_;
    const PhysicalDevice physical_;
    const QueuePlan plan_;
    VkDevice device_ = nullptr;
    DeviceFunctions functions_;
    MemoryPlan memory_;
    std::vector<std::deque<Queue>> queues_;  // by family
    std::vector<std::uint32_t> families_;
    PFN_vkGetPhysicalDeviceMemoryProperties2 budget_ = nullptr;
    std::atomic<std::uint32_t> allocations_left_;
};

}  // namespace gpunbd::storage::vulkan
