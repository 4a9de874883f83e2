#include "storage/devices/vulkan/logical_device.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "storage/devices/vulkan/buffer.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::uint32_t max_queues = 16;  // of one family: about one for each worker
// Other parts of the process, such as layers, allocate too.
constexpr std::uint32_t spare_allocations = 16;

constexpr std::array optional_extensions{
    VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME,
    VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME,
    VK_EXT_MEMORY_BUDGET_EXTENSION_NAME,
    VK_AMD_MEMORY_OVERALLOCATION_BEHAVIOR_EXTENSION_NAME,
};

}  // namespace

LogicalDevice::LogicalDevice(std::shared_ptr<const Instance> instance,
                             const PhysicalDevice& physical)
    : instance_(std::move(instance)),
      physical_(physical),
      plan_(plan_queues(physical.queues)),
      queues_(physical.queues.size()),
      allocations_left_(physical.max_allocations -
                        std::min(physical.max_allocations / 2, spare_allocations)) {
    if (const std::string reason = physical_.reason_unusable(); !reason.empty()) {
        throw Unavailable(reason);
    }
    if (plan_.copying.empty()) throw Unavailable("it has no queue that copies");
    create();
    try {
        functions_ = DeviceFunctions::of(
            device_, instance_->find<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr"));
        for (const std::uint32_t family : families_) {
            for (std::uint32_t i = 0; i < queue_count(family); ++i) {
                VkQueue queue = nullptr;
                functions_.GetDeviceQueue(device_, family, i, &queue);
                queues_[family].emplace_back(functions_, queue, family);
            }
        }
        const std::optional<MemoryPlan> memory =
            plan_memory(physical_.memory, Buffer::usable_types(*this, 0));
        if (!memory) throw Unavailable("it has no memory of its own");
        memory_ = *memory;
        if (physical_.has(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME)) {
            budget_ = instance_->find<PFN_vkGetPhysicalDeviceMemoryProperties2>(
                "vkGetPhysicalDeviceMemoryProperties2");
        }
    } catch (...) {
        instance_->find<PFN_vkDestroyDevice>("vkDestroyDevice")(device_, nullptr);
        throw;
    }
}

LogicalDevice::~LogicalDevice() { functions_.DestroyDevice(device_, nullptr); }

void LogicalDevice::create() {
    families_ = plan_.copying;
    const std::array<float, max_queues> priorities = [] {
        std::array<float, max_queues> all{};
        all.fill(1);
        return all;
    }();
    std::vector<VkDeviceQueueCreateInfo> queues;
    for (const std::uint32_t family : families_) {
        VkDeviceQueueCreateInfo queue{};
        queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
        queue.queueFamilyIndex = family;
        queue.queueCount = queue_count(family);
        queue.pQueuePriorities = priorities.data();
        queues.push_back(queue);
    }
    std::vector<const char*> extensions;
    for (const char* extension : optional_extensions) {
        if (physical_.has(extension)) extensions.push_back(extension);
    }
    VkPhysicalDeviceVulkan12Features features{};
    features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    features.timelineSemaphore = VK_TRUE;
    features.bufferDeviceAddress = physical_.device_addresses ? VK_TRUE : VK_FALSE;
    VkDeviceMemoryOverallocationCreateInfoAMD overallocation{};
    overallocation.sType = VK_STRUCTURE_TYPE_DEVICE_MEMORY_OVERALLOCATION_CREATE_INFO_AMD;
    overallocation.overallocationBehavior = VK_MEMORY_OVERALLOCATION_BEHAVIOR_DISALLOWED_AMD;
    if (physical_.has(VK_AMD_MEMORY_OVERALLOCATION_BEHAVIOR_EXTENSION_NAME)) {
        features.pNext = &overallocation;
    }
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = &features;
    info.queueCreateInfoCount = static_cast<std::uint32_t>(queues.size());
    info.pQueueCreateInfos = queues.data();
    info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    require(instance_->find<PFN_vkCreateDevice>("vkCreateDevice")(physical_.handle, &info, nullptr,
                                                                  &device_),
            "its driver cannot open it");
}

// Families that are used only if the preferred one does not work get one queue: each costs the
// driver time and memory.
std::uint32_t LogicalDevice::queue_count(std::uint32_t family) const {
    const bool preferred = family == plan_.copying.front() || family == plan_.computing;
    return preferred ? std::min(physical_.queues[family].queueCount, max_queues) : 1;
}

std::uint64_t LogicalDevice::free_memory() const {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
    budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    memory.pNext = &budget;
    budget_(physical_.handle, &memory);
    const std::uint64_t all = budget.heapBudget[memory_.heap];
    return all - std::min(all, budget.heapUsage[memory_.heap]);
}

bool LogicalDevice::take_allocation() {
    std::uint32_t left = allocations_left_.load();
    do {
        if (left == 0) return false;
    } while (!allocations_left_.compare_exchange_weak(left, left - 1));
    return true;
}

}  // namespace gpunbd::storage::vulkan
