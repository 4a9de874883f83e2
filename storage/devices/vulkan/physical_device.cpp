#include "storage/devices/vulkan/physical_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "storage/devices/gpu/gpu_id.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::string_view scheme = "vulkan";

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

std::string version_text(std::uint32_t version) {
    return fmt::format("{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
}

PhysicalDevice describe(const Instance& instance, VkPhysicalDevice handle, std::uint32_t number) {
    PhysicalDevice found;
    found.handle = handle;
    found.number = number;
    found.extensions = instance.extensions(handle);

    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host{};
    host.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT;
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci{};
    pci.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT;
    VkPhysicalDeviceDriverProperties driver{};
    driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
    VkPhysicalDeviceMaintenance3Properties limits{};
    limits.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
    VkPhysicalDeviceIDProperties id{};
    id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
    VkPhysicalDeviceProperties2 all{};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    const auto chain = [&](auto& structure) {
        structure.pNext = std::exchange(all.pNext, &structure);
    };
    const bool has_host = found.has(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    const bool has_pci = found.has(VK_EXT_PCI_BUS_INFO_EXTENSION_NAME);
    chain(id);
    chain(limits);
    if (has_host) chain(host);
    if (has_pci) chain(pci);
    const auto properties =
        instance.find<PFN_vkGetPhysicalDeviceProperties2>("vkGetPhysicalDeviceProperties2");
    VkPhysicalDeviceProperties plain{};
    instance.find<PFN_vkGetPhysicalDeviceProperties>("vkGetPhysicalDeviceProperties")(handle,
                                                                                      &plain);
    const bool has_1_2 = plain.apiVersion >= VK_API_VERSION_1_2;
    if (has_1_2) chain(driver);
    properties(handle, &all);

    found.name = all.properties.deviceName;
    found.driver = has_1_2 ? fmt::format("{}, {}", driver.driverName, driver.driverInfo) : "";
    if (has_1_2) found.driver_id = driver.driverID;
    std::ranges::copy(id.deviceUUID, found.uuid.begin());
    if (has_pci) {
        found.address = fmt::format("{:04x}:{:02x}:{:02x}.{}", pci.pciDomain, pci.pciBus,
                                    pci.pciDevice, pci.pciFunction);
    }
    found.version = all.properties.apiVersion;
    found.type = all.properties.deviceType;
    found.max_allocations = all.properties.limits.maxMemoryAllocationCount;
    found.max_allocation_bytes = limits.maxMemoryAllocationSize;
    if (has_host) found.host_import_alignment = host.minImportedHostPointerAlignment;

    if (has_1_2) {
        VkPhysicalDeviceVulkan12Features since_1_2{};
        since_1_2.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
        VkPhysicalDeviceFeatures2 features{};
        features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
        features.pNext = &since_1_2;
        instance.find<PFN_vkGetPhysicalDeviceFeatures2>("vkGetPhysicalDeviceFeatures2")(handle,
                                                                                        &features);
        found.timeline_semaphores = since_1_2.timelineSemaphore == VK_TRUE;
        found.device_addresses = since_1_2.bufferDeviceAddress == VK_TRUE;
    }
    instance.find<PFN_vkGetPhysicalDeviceMemoryProperties>("vkGetPhysicalDeviceMemoryProperties")(
        handle, &found.memory);
    const auto families = instance.find<PFN_vkGetPhysicalDeviceQueueFamilyProperties>(
        "vkGetPhysicalDeviceQueueFamilyProperties");
    std::uint32_t count = 0;
    families(handle, &count, nullptr);
    found.queues.resize(count);
    families(handle, &count, found.queues.data());
    return found;
}

}  // namespace

std::string guess_id(std::string_view text) {
    constexpr std::array<std::string_view, 6> others{"vulkan", "vk",    "amd",
                                                     "radeon", "intel", "opencl"};
    const std::size_t letters =
        std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
    if (std::ranges::find(others, text.substr(0, letters)) == others.end()) return {};
    std::string_view number = text.substr(letters);
    if (!number.empty() && (number[0] == ':' || number[0] == '-')) number.remove_prefix(1);
    if (number.empty()) number = "0";
    return parse_gpu_id(scheme, fmt::format("{}:{}", scheme, number)).value_or("");
}

std::string identity_of(std::string_view hardware) {
    return fmt::format("{}:{}", scheme, hardware);
}

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

bool PhysicalDevice::has(const char* extension) const {
    return std::ranges::find(extensions, extension) != extensions.end();
}

std::string PhysicalDevice::reason_unusable() const {
    if (version < VK_API_VERSION_1_2) {
        return fmt::format("its driver supports Vulkan {}; 1.2 is needed", version_text(version));
    }
    if (!timeline_semaphores) return "its driver has no timeline semaphores";
    return {};
}

std::vector<PhysicalDevice> physical_devices(const Instance& instance) {
    std::vector<PhysicalDevice> found;
    for (VkPhysicalDevice handle : instance.physical_devices()) {
        found.push_back(describe(instance, handle, static_cast<std::uint32_t>(found.size())));
    }
    return found;
}

}  // namespace gpunbd::storage::vulkan
