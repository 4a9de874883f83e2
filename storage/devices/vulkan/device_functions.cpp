#include "storage/devices/vulkan/device_functions.hpp"

#include <fmt/format.h>

#include "storage/devices/vulkan/base/instance.hpp"

namespace gpunbd::storage::vulkan {

namespace {

template <class Function>
void look_up(Function& function, const char* name, VkDevice device, PFN_vkGetDeviceProcAddr get) {
    function = reinterpret_cast<Function>(get(device, name));
}

template <class Function>
void find(Function& function, const char* name, VkDevice device, PFN_vkGetDeviceProcAddr get) {
    look_up(function, name, device, get);
    if (function == nullptr) throw Unavailable(fmt::format("Vulkan lacks {}", name));
}

}  // namespace

DeviceFunctions DeviceFunctions::of(VkDevice device, PFN_vkGetDeviceProcAddr get) {
    DeviceFunctions found;
#define GPUNBD_FIND(name) find(found.name, "vk" #name, device, get)
    GPUNBD_FIND(AllocateCommandBuffers);
    GPUNBD_FIND(AllocateMemory);
    GPUNBD_FIND(BeginCommandBuffer);
    GPUNBD_FIND(BindBufferMemory);
    GPUNBD_FIND(CmdBindPipeline);
    GPUNBD_FIND(CmdCopyBuffer);
    GPUNBD_FIND(CmdDispatch);
    GPUNBD_FIND(CmdFillBuffer);
    GPUNBD_FIND(CmdPipelineBarrier);
    GPUNBD_FIND(CmdPushConstants);
    GPUNBD_FIND(CmdResetQueryPool);
    GPUNBD_FIND(CmdWriteTimestamp);
    GPUNBD_FIND(CreateBuffer);
    GPUNBD_FIND(CreateCommandPool);
    GPUNBD_FIND(CreateComputePipelines);
    GPUNBD_FIND(CreatePipelineLayout);
    GPUNBD_FIND(CreateQueryPool);
    GPUNBD_FIND(CreateSemaphore);
    GPUNBD_FIND(CreateShaderModule);
    GPUNBD_FIND(DestroyBuffer);
    GPUNBD_FIND(DestroyCommandPool);
    GPUNBD_FIND(DestroyDevice);
    GPUNBD_FIND(DestroyPipeline);
    GPUNBD_FIND(DestroyPipelineLayout);
    GPUNBD_FIND(DestroyQueryPool);
    GPUNBD_FIND(DestroySemaphore);
    GPUNBD_FIND(DestroyShaderModule);
    GPUNBD_FIND(EndCommandBuffer);
    GPUNBD_FIND(FreeMemory);
    GPUNBD_FIND(GetBufferDeviceAddress);
    GPUNBD_FIND(GetBufferMemoryRequirements);
    GPUNBD_FIND(GetDeviceQueue);
    GPUNBD_FIND(GetQueryPoolResults);
    GPUNBD_FIND(GetSemaphoreCounterValue);
    GPUNBD_FIND(MapMemory);
    GPUNBD_FIND(QueueSubmit);
    GPUNBD_FIND(WaitSemaphores);
#undef GPUNBD_FIND
    look_up(found.GetMemoryFdKHR, "vkGetMemoryFdKHR", device, get);
    look_up(found.GetMemoryHostPointerPropertiesEXT, "vkGetMemoryHostPointerPropertiesEXT", device,
            get);
    return found;
}

}  // namespace gpunbd::storage::vulkan
