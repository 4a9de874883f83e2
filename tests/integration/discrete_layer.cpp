// A Vulkan layer for tests: the driver on the CPU looks like a GPU with memory of its own. The CPU
// writes that memory in place and does not cache it, and there is a second type of memory, which is
// the host's. All types are the driver's first one, so copies between them are those of the driver.
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include <cstdint>
#include <string_view>

namespace {

constexpr std::uint32_t both_types = 0b11;

PFN_vkGetInstanceProcAddr next_instance_function = nullptr;
PFN_vkGetDeviceProcAddr next_device_function = nullptr;
PFN_vkGetPhysicalDeviceMemoryProperties next_memory_properties = nullptr;
PFN_vkCreateDevice next_create_device = nullptr;
PFN_vkGetBufferMemoryRequirements next_requirements = nullptr;
PFN_vkGetMemoryHostPointerPropertiesEXT next_host_properties = nullptr;
PFN_vkAllocateMemory next_allocate = nullptr;

// The loader's link to the next layer or driver in a chain of structures.
template <class Link>
Link* find_link(const void* chain, VkStructureType type) {
    for (auto* link = static_cast<Link*>(const_cast<void*>(chain)); link != nullptr;
         link = static_cast<Link*>(const_cast<void*>(link->pNext))) {
        if (link->sType == type && link->function == VK_LAYER_LINK_INFO) return link;
    }
    return nullptr;
}

VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice physical,
                                             VkPhysicalDeviceMemoryProperties* out) {
    next_memory_properties(physical, out);
    const VkMemoryPropertyFlags visible =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    out->memoryTypeCount = 2;
    out->memoryTypes[0] = {.propertyFlags = visible | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                           .heapIndex = 0};
    out->memoryTypes[1] = {.propertyFlags = visible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
                           .heapIndex = 1};
    out->memoryHeapCount = 2;
    out->memoryHeaps[1] = {.size = out->memoryHeaps[0].size, .flags = 0};
}

VKAPI_ATTR void VKAPI_CALL requirements(VkDevice device, VkBuffer buffer,
                                        VkMemoryRequirements* out) {
    next_requirements(device, buffer, out);
    out->memoryTypeBits = both_types;
}

VKAPI_ATTR VkResult VKAPI_CALL host_properties(VkDevice device,
                                               VkExternalMemoryHandleTypeFlagBits type,
                                               const void* pointer,
                                               VkMemoryHostPointerPropertiesEXT* out) {
    const VkResult result = next_host_properties(device, type, pointer, out);
    out->memoryTypeBits = both_types;
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                        const VkAllocationCallbacks* callbacks,
                                        VkDeviceMemory* memory) {
    VkMemoryAllocateInfo changed = *info;
    changed.memoryTypeIndex = 0;
    return next_allocate(device, &changed, callbacks, memory);
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                             const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* callbacks,
                                             VkDevice* device) {
    auto* const link = find_link<VkLayerDeviceCreateInfo>(
        info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (link == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
    next_device_function = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    return next_create_device(physical, info, callbacks, device);
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info,
                                               const VkAllocationCallbacks* callbacks,
                                               VkInstance* instance) {
    auto* const link = find_link<VkLayerInstanceCreateInfo>(
        info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (link == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
    next_instance_function = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const auto next =
        reinterpret_cast<PFN_vkCreateInstance>(next_instance_function(nullptr, "vkCreateInstance"));
    const VkResult result = next(info, callbacks, instance);
    if (result != VK_SUCCESS) return result;
    next_create_device =
        reinterpret_cast<PFN_vkCreateDevice>(next_instance_function(*instance, "vkCreateDevice"));
    next_memory_properties = reinterpret_cast<PFN_vkGetPhysicalDeviceMemoryProperties>(
        next_instance_function(*instance, "vkGetPhysicalDeviceMemoryProperties"));
    return result;
}

template <class Function>
PFN_vkVoidFunction take(Function& next, PFN_vkVoidFunction found, Function own) {
    next = reinterpret_cast<Function>(found);
    return found == nullptr ? nullptr : reinterpret_cast<PFN_vkVoidFunction>(own);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name) {
    const PFN_vkVoidFunction found = next_device_function(device, name);
    const std::string_view wanted(name);
    if (wanted == "vkGetDeviceProcAddr")
        return reinterpret_cast<PFN_vkVoidFunction>(device_function);
    if (wanted == "vkAllocateMemory") return take(next_allocate, found, allocate);
    if (wanted == "vkGetBufferMemoryRequirements")
        return take(next_requirements, found, requirements);
    if (wanted == "vkGetMemoryHostPointerPropertiesEXT")
        return take(next_host_properties, found, host_properties);
    return found;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char* name) {
    const std::string_view wanted(name);
    if (wanted == "vkCreateInstance") return reinterpret_cast<PFN_vkVoidFunction>(create_instance);
    if (wanted == "vkCreateDevice") return reinterpret_cast<PFN_vkVoidFunction>(create_device);
    if (wanted == "vkGetDeviceProcAddr")
        return reinterpret_cast<PFN_vkVoidFunction>(device_function);
    if (wanted == "vkGetPhysicalDeviceMemoryProperties") {
        return reinterpret_cast<PFN_vkVoidFunction>(memory_properties);
    }
    return next_instance_function == nullptr ? nullptr : next_instance_function(instance, name);
}

}  // namespace

extern "C" VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* interface) {
    interface->loaderLayerInterfaceVersion = 2;
    interface->pfnGetInstanceProcAddr = instance_function;
    interface->pfnGetDeviceProcAddr = device_function;
    interface->pfnGetPhysicalDeviceProcAddr = nullptr;
    return VK_SUCCESS;
}
