#include "storage/devices/vulkan/base/instance.hpp"

#include <dlfcn.h>

#include <algorithm>

namespace gpunbd::storage::vulkan {

namespace {

constexpr const char* loader_name = "libvulkan.so.1";

}  // namespace

std::string to_text(VkResult result) {
    switch (result) {
        case VK_ERROR_OUT_OF_HOST_MEMORY:
            return "VK_ERROR_OUT_OF_HOST_MEMORY";
        case VK_ERROR_OUT_OF_DEVICE_MEMORY:
            return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
        case VK_ERROR_INITIALIZATION_FAILED:
            return "VK_ERROR_INITIALIZATION_FAILED";
        case VK_ERROR_DEVICE_LOST:
            return "VK_ERROR_DEVICE_LOST";
        case VK_ERROR_MEMORY_MAP_FAILED:
            return "VK_ERROR_MEMORY_MAP_FAILED";
        case VK_ERROR_INCOMPATIBLE_DRIVER:
            return "VK_ERROR_INCOMPATIBLE_DRIVER";
        case VK_ERROR_TOO_MANY_OBJECTS:
            return "VK_ERROR_TOO_MANY_OBJECTS";
        case VK_ERROR_INVALID_EXTERNAL_HANDLE:
            return "VK_ERROR_INVALID_EXTERNAL_HANDLE";
        default:
            return fmt::format("Vulkan error {}", static_cast<int>(result));
    }
}

void require(VkResult result, const char* what) {
    if (result != VK_SUCCESS) throw Unavailable(fmt::format("{}: {}", what, to_text(result)));
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

Instance::Instance(const Loader& loader) : loader_(loader) {
    const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                        .pNext = nullptr,
                                        .pApplicationName = "gpunbd",
                                        .applicationVersion = 0,
                                        .pEngineName = nullptr,
                                        .engineVersion = 0,
                                        .apiVersion = VK_API_VERSION_1_2};
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    require(GPUNBD_FIND(vkCreateInstance)(&info, nullptr, &instance_), "no Vulkan driver works");
    destroy_ = GPUNBD_FIND(vkDestroyInstance);
}

std::vector<VkPhysicalDevice> Instance::physical_devices() const {
    const auto enumerate = GPUNBD_FIND(vkEnumeratePhysicalDevices);
    std::uint32_t count = 0;
    require(enumerate(instance_, &count, nullptr), "Vulkan lists no devices");
    std::vector<VkPhysicalDevice> devices(count);
    require(enumerate(instance_, &count, devices.data()), "Vulkan lists no devices");
    devices.resize(count);
    return devices;
}

VkPhysicalDevice Instance::find_physical_device(const Uuid& uuid) const {
    const auto properties = GPUNBD_FIND(vkGetPhysicalDeviceProperties2);
    for (VkPhysicalDevice device : physical_devices()) {
        VkPhysicalDeviceIDProperties id{};
        id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
        VkPhysicalDeviceProperties2 all{};
        all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
        all.pNext = &id;
        properties(device, &all);
        if (std::ranges::equal(id.deviceUUID, uuid)) return device;
    }
    throw Unavailable("Vulkan does not know this GPU");
}

std::vector<std::string> Instance::extensions(VkPhysicalDevice device) const {
    const auto enumerate = GPUNBD_FIND(vkEnumerateDeviceExtensionProperties);
    std::uint32_t count = 0;
    require(enumerate(device, nullptr, &count, nullptr), "Vulkan lists no extensions");
    std::vector<VkExtensionProperties> found(count);
    require(enumerate(device, nullptr, &count, found.data()), "Vulkan lists no extensions");
    std::vector<std::string> names;
    names.reserve(count);
    for (const VkExtensionProperties& extension : found) {
        names.emplace_back(extension.extensionName);
    }
    return names;
}

bool Instance::has_extension(VkPhysicalDevice device, const char* name) const {
    const std::vector<std::string> names = extensions(device);
    return std::ranges::find(names, name) != names.end();
}

#undef GPUNBD_FIND

}  // namespace gpunbd::storage::vulkan
