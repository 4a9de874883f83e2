#define VK_NO_PROTOTYPES
#include "storage/devices/cuda/vulkan/vulkan_instance.hpp"

#include <dlfcn.h>

#include <cstring>
#include <vector>

namespace gpunbd::storage::vulkan {

namespace {

constexpr const char* loader_name = "libvulkan.so.1";

}  // namespace

void require(VkResult result, const char* what) {
    if (result != VK_SUCCESS) {
        throw Unavailable(fmt::format("{}: Vulkan error {}", what, static_cast<int>(result)));
    }
}

Loader::Loader() {
    void* const library = ::dlopen(loader_name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw Unavailable(fmt::format("there is no {}", loader_name));
    get_instance_proc_addr_ =
        reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(library, "vkGetInstanceProcAddr"));
    if (get_instance_proc_addr_ == nullptr) {
        ::dlclose(library);
        throw Unavailable(fmt::format("{} is not a Vulkan loader", loader_name));
    }
}

#define GPUNBD_FIND(name) loader_.find<PFN_##name>(instance_, #name)

Instance::Instance() {
    const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                        .pNext = nullptr,
                                        .pApplicationName = "gpunbd",
                                        .applicationVersion = 0,
                                        .pEngineName = nullptr,
                                        .engineVersion = 0,
                                        .apiVersion = VK_API_VERSION_1_1};
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    require(GPUNBD_FIND(vkCreateInstance)(&info, nullptr, &instance_), "no Vulkan driver works");
    destroy_ = GPUNBD_FIND(vkDestroyInstance);
}

VkPhysicalDevice Instance::find_physical_device(
    const std::array<unsigned char, VK_UUID_SIZE>& uuid) const {
    const auto enumerate = GPUNBD_FIND(vkEnumeratePhysicalDevices);
    std::uint32_t count = 0;
    require(enumerate(instance_, &count, nullptr), "Vulkan lists no devices");
    std::vector<VkPhysicalDevice> devices(count);
    require(enumerate(instance_, &count, devices.data()), "Vulkan lists no devices");
    const auto properties = GPUNBD_FIND(vkGetPhysicalDeviceProperties2);
    for (VkPhysicalDevice device : devices) {
        VkPhysicalDeviceIDProperties id{};
        id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
        VkPhysicalDeviceProperties2 all{};
        all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
        all.pNext = &id;
        properties(device, &all);
        if (std::memcmp(id.deviceUUID, uuid.data(), uuid.size()) == 0) return device;
    }
    throw Unavailable("Vulkan does not know this GPU");
}

bool Instance::has_extension(VkPhysicalDevice device, const char* name) const {
    const auto enumerate = GPUNBD_FIND(vkEnumerateDeviceExtensionProperties);
    std::uint32_t count = 0;
    require(enumerate(device, nullptr, &count, nullptr), "Vulkan lists no extensions");
    std::vector<VkExtensionProperties> extensions(count);
    require(enumerate(device, nullptr, &count, extensions.data()), "Vulkan lists no extensions");
    for (const VkExtensionProperties& extension : extensions) {
        if (std::strcmp(extension.extensionName, name) == 0) return true;
    }
    return false;
}

}  // namespace gpunbd::storage::vulkan
