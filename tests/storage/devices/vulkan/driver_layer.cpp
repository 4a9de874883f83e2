#include "tests/storage/devices/vulkan/driver_layer.hpp"

#include <dlfcn.h>

#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "storage/devices/vulkan/vulkan_device.hpp"

namespace gpunbd::storage::vulkan::test {

namespace {

DriverChanges* active = nullptr;

PFN_vkGetInstanceProcAddr next_instance_function = nullptr;
PFN_vkGetDeviceProcAddr next_device_function = nullptr;
PFN_vkCreateDevice next_create_device = nullptr;
PFN_vkGetPhysicalDeviceMemoryProperties2 next_memory_properties = nullptr;
PFN_vkAllocateMemory next_allocate = nullptr;
PFN_vkMapMemory next_map = nullptr;
PFN_vkQueueSubmit next_submit = nullptr;
PFN_vkGetSemaphoreCounterValue next_counter = nullptr;
PFN_vkCreateComputePipelines next_compile = nullptr;
PFN_vkCmdCopyBuffer next_copy = nullptr;
PFN_vkCmdFillBuffer next_fill = nullptr;
PFN_vkGetQueryPoolResults next_timestamps = nullptr;
PFN_vkCreateBuffer next_create_buffer = nullptr;
PFN_vkGetBufferMemoryRequirements next_requirements = nullptr;

std::mutex host_mutex;                // guards the following sets
std::set<VkBuffer> host_buffers;      // of imported host memory
std::set<VkBuffer> exported_buffers;  // of memory with a descriptor

std::atomic<bool> last_fill_is_of_host{false};

VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                        const VkAllocationCallbacks* callbacks,
                                        VkDeviceMemory* memory) {
    const VkResult result = active->allocate.load();
    if (result != VK_SUCCESS) return result;
    VkMemoryAllocateInfo changed = *info;
    changed.memoryTypeIndex = 0;  // the driver has one type
    return next_allocate(device, &changed, callbacks, memory);
}

VKAPI_ATTR VkResult VKAPI_CALL map(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                                   VkDeviceSize size, VkMemoryMapFlags flags, void** out) {
    const VkResult result = active->allocate_mapped.load();
    return result == VK_SUCCESS ? next_map(device, memory, offset, size, flags, out) : result;
}

VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                      VkFence fence) {
    const VkResult result = active->submit.load();
    return result == VK_SUCCESS ? next_submit(queue, count, infos, fence) : result;
}

VKAPI_ATTR VkResult VKAPI_CALL counter(VkDevice device, VkSemaphore semaphore,
                                       std::uint64_t* value) {
    const VkResult result = active->counter.load();
    return result == VK_SUCCESS ? next_counter(device, semaphore, value) : result;
}

VKAPI_ATTR VkResult VKAPI_CALL compile(VkDevice device, VkPipelineCache cache, std::uint32_t count,
                                       const VkComputePipelineCreateInfo* infos,
                                       const VkAllocationCallbacks* callbacks,
                                       VkPipeline* pipelines) {
    const VkResult result = active->compile.load();
    return result == VK_SUCCESS ? next_compile(device, cache, count, infos, callbacks, pipelines)
                                : result;
}

VKAPI_ATTR void VKAPI_CALL copy(VkCommandBuffer commands, VkBuffer from, VkBuffer to,
                                std::uint32_t count, const VkBufferCopy* regions) {
    if (!active->garble.load()) next_copy(commands, from, to, count, regions);
}

VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice device, const VkBufferCreateInfo* info,
                                             const VkAllocationCallbacks* callbacks,
                                             VkBuffer* buffer) {
    const VkResult wanted = active->create_buffer.load();
    if (wanted != VK_SUCCESS) return wanted;
    const VkResult result = next_create_buffer(device, info, callbacks, buffer);
    const auto* const external = static_cast<const VkExternalMemoryBufferCreateInfo*>(info->pNext);
    if (result != VK_SUCCESS) return result;
    const std::lock_guard lock(host_mutex);
    host_buffers.erase(*buffer);
    exported_buffers.erase(*buffer);
    if (external == nullptr) return result;
    const bool of_host =
        external->handleTypes == VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    (of_host ? host_buffers : exported_buffers).insert(*buffer);
    return result;
}

VKAPI_ATTR void VKAPI_CALL requirements(VkDevice device, VkBuffer buffer,
                                        VkMemoryRequirements* out) {
    next_requirements(device, buffer, out);
    const std::lock_guard lock(host_mutex);
    const std::uint32_t types =
        exported_buffers.contains(buffer) ? active->exported_types : active->types;
    if (types != 0) out->memoryTypeBits = types;
}

bool is_host_buffer(VkBuffer buffer) {
    const std::lock_guard lock(host_mutex);
    return host_buffers.contains(buffer);
}

VKAPI_ATTR void VKAPI_CALL fill(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset,
                                VkDeviceSize size, std::uint32_t word) {
    last_fill_is_of_host = is_host_buffer(buffer);
    next_fill(commands, buffer, offset, size, word);
}

// The two timestamps around a fill.
VKAPI_ATTR VkResult VKAPI_CALL timestamps(VkDevice device, VkQueryPool pool, std::uint32_t first,
                                          std::uint32_t count, std::size_t bytes, void* out,
                                          VkDeviceSize stride, VkQueryResultFlags flags) {
    const VkResult result = next_timestamps(device, pool, first, count, bytes, out, stride, flags);
    auto* const at = static_cast<std::uint64_t*>(out);
    at[1] = at[0] + (last_fill_is_of_host ? active->host_fill_ticks : active->fill_ticks).load();
    return result;
}

VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice device,
                                             VkPhysicalDeviceMemoryProperties2* out) {
    auto* const budget = static_cast<VkPhysicalDeviceMemoryBudgetPropertiesEXT*>(out->pNext);
    out->pNext = nullptr;  // the driver does not know it
    next_memory_properties(device, out);
    if (budget == nullptr) return;
    for (std::uint32_t heap = 0; heap < VK_MAX_MEMORY_HEAPS; ++heap) {
        budget->heapUsage[heap] = 1 << 20;
        budget->heapBudget[heap] = active->free_memory.value_or(0) + (1 << 20);
    }
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                             const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* callbacks,
                                             VkDevice* device) {
    std::vector<const char*> extensions(
        info->ppEnabledExtensionNames, info->ppEnabledExtensionNames + info->enabledExtensionCount);
    std::erase_if(extensions, [](const char* name) {
        return std::string_view(name) == VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    });
    VkDeviceCreateInfo changed = *info;
    changed.ppEnabledExtensionNames = extensions.data();
    changed.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
    return next_create_device(physical, &changed, callbacks, device);
}

template <class Function>
PFN_vkVoidFunction take(Function& next, PFN_vkVoidFunction found, Function own) {
    next = reinterpret_cast<Function>(found);
    return reinterpret_cast<PFN_vkVoidFunction>(own);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name) {
    const PFN_vkVoidFunction found = next_device_function(device, name);
    const std::string_view wanted(name);
    if (wanted == "vkAllocateMemory") return take(next_allocate, found, allocate);
    if (wanted == "vkMapMemory") return take(next_map, found, map);
    if (wanted == "vkQueueSubmit") return take(next_submit, found, submit);
    if (wanted == "vkGetSemaphoreCounterValue") return take(next_counter, found, counter);
    if (wanted == "vkCreateComputePipelines") return take(next_compile, found, compile);
    if (wanted == "vkCmdCopyBuffer") return take(next_copy, found, copy);
    if (wanted == "vkCmdFillBuffer") return take(next_fill, found, fill);
    if (wanted == "vkGetQueryPoolResults") return take(next_timestamps, found, timestamps);
    if (wanted == "vkGetBufferMemoryRequirements") {
        return take(next_requirements, found, requirements);
    }
    if (wanted == "vkCreateBuffer") return take(next_create_buffer, found, create_buffer);
    return found;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char* name) {
    const PFN_vkVoidFunction found = next_instance_function(instance, name);
    const std::string_view wanted(name);
    if (wanted == "vkGetDeviceProcAddr") return take(next_device_function, found, device_function);
    if (wanted == "vkCreateDevice") return take(next_create_device, found, create_device);
    if (wanted == "vkGetPhysicalDeviceMemoryProperties2") {
        return take(next_memory_properties, found, memory_properties);
    }
    return found;
}

}  // namespace

DriverLayer::DriverLayer() {
    active = &changes;
    try {
        void* const library = ::dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) throw Unavailable("there is no libvulkan.so.1");
        next_instance_function =
            reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(library, "vkGetInstanceProcAddr"));
        instance_ = std::make_shared<const Instance>(Loader(instance_function));
        for (const PhysicalDevice& physical : physical_devices(*instance_)) {
            if (physical.on_cpu() && physical.reason_unusable().empty()) physical_ = physical;
        }
        if (!physical_) why_none_ = "no Vulkan driver on the CPU (mesa-vulkan-drivers)";
    } catch (const Unavailable& error) {
        why_none_ = error.what();
    }
}

DriverLayer::~DriverLayer() { active = nullptr; }

std::unique_ptr<Device> DriverLayer::open(const DeviceOptions& options, std::uint32_t number) {
    PhysicalDevice physical = *physical_;
    if (changes.describe) changes.describe(physical);
    if (changes.free_memory) physical.extensions.emplace_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    return open_vulkan_device(number, "vulkan:" + std::to_string(number), instance_, physical,
                              options);
}

}  // namespace gpunbd::storage::vulkan::test
