#include "storage/devices/vulkan/memory_plan.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags coherent =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
// Types with other properties are protected, allocated lazily, or uncached by the device.
constexpr VkMemoryPropertyFlags known = local | coherent | cached;

std::optional<std::uint32_t> largest_local_heap(const VkPhysicalDeviceMemoryProperties& memory) {
    std::optional<std::uint32_t> largest;
    for (std::uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
        const VkMemoryHeap& heap = memory.memoryHeaps[i];
        if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
        if (!largest || heap.size > memory.memoryHeaps[*largest].size) largest = i;
    }
    return largest;
}

// The first type with exactly these properties, in `heap` if given.
std::optional<std::uint32_t> find_type(const VkPhysicalDeviceMemoryProperties& memory,
                                       std::uint32_t usable, VkMemoryPropertyFlags properties,
                                       std::optional<std::uint32_t> heap = {}) {
    for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
        const VkMemoryType& type = memory.memoryTypes[i];
        if ((usable >> i & 1) != 0 && type.propertyFlags == properties &&
            (!heap || type.heapIndex == *heap)) {
            return i;
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<MemoryPlan> plan_memory(const VkPhysicalDeviceMemoryProperties& memory,
                                      std::uint32_t usable) {
    const std::optional<std::uint32_t> heap = largest_local_heap(memory);
    if (!heap) return std::nullopt;
    MemoryPlan plan;
    plan.heap = *heap;
    plan.bytes = memory.memoryHeaps[*heap].size;
    const auto in_cache = find_type(memory, usable, known, heap);
    plan.cached = in_cache.has_value();
    plan.mapped_type = plan.cached ? in_cache : find_type(memory, usable, local | coherent, heap);
    std::optional<std::uint32_t> type = find_type(memory, usable, local, heap);
    if (!type) type = find_type(memory, usable, local | coherent, heap);
    if (!type) type = in_cache;
    if (!type) return std::nullopt;
    plan.local_type = *type;
    plan.staging_type = cached_host_type(memory, usable);
    return plan;
}

std::optional<std::uint32_t> cached_host_type(const VkPhysicalDeviceMemoryProperties& memory,
                                              std::uint32_t usable) {
    const auto in_host = find_type(memory, usable, coherent | cached);
    return in_host ? in_host : find_type(memory, usable, known);
}

}  // namespace gpunbd::storage::vulkan
