#define VK_NO_PROTOTYPES
#include "storage/devices/cuda/vulkan_memory.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr const char* loader_name = "libvulkan.so.1";
constexpr VkExternalMemoryHandleTypeFlagBits handle_type =
    VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;

// Only within this file, where open() and allocate() turn it into words.
struct Unavailable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void require(VkResult result, const char* what) {
    if (result != VK_SUCCESS) {
        throw Unavailable(fmt::format("{}: Vulkan error {}", what, static_cast<int>(result)));
    }
}

class Loader {
 public:
    Loader() : library_(::dlopen(loader_name, RTLD_NOW | RTLD_LOCAL)) {
        if (library_ == nullptr) throw Unavailable(fmt::format("there is no {}", loader_name));
        get_instance_proc_addr =
            reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(library_, "vkGetInstanceProcAddr"));
        if (get_instance_proc_addr == nullptr) {
            ::dlclose(library_);
            throw Unavailable(fmt::format("{} is no Vulkan loader", loader_name));
        }
    }
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;
    // The library stays: drivers that it has loaded do not all survive being unloaded.
    ~Loader() = default;

    template <class Function>
    Function find(VkInstance instance, const char* name) const {
        const auto function = reinterpret_cast<Function>(get_instance_proc_addr(instance, name));
        if (function == nullptr) throw Unavailable(fmt::format("Vulkan lacks {}", name));
        return function;
    }

    PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;

 private:
    void* library_;
};

#define GPUNBD_FIND(name) loader_.find<PFN_##name>(instance_, #name)

class Instance {
 public:
    Instance() {
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
        require(GPUNBD_FIND(vkCreateInstance)(&info, nullptr, &instance_),
                "no Vulkan driver works");
        destroy_ = GPUNBD_FIND(vkDestroyInstance);
    }
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;
    ~Instance() { destroy_(instance_, nullptr); }

    template <class Function>
    Function find(const char* name) const {
        return loader_.find<Function>(instance_, name);
    }

    VkPhysicalDevice find_physical_device(const VulkanMemory::Uuid& uuid) const {
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

    bool has_extension(VkPhysicalDevice device, const char* name) const {
        const auto enumerate = GPUNBD_FIND(vkEnumerateDeviceExtensionProperties);
        std::uint32_t count = 0;
        require(enumerate(device, nullptr, &count, nullptr), "Vulkan lists no extensions");
        std::vector<VkExtensionProperties> extensions(count);
        require(enumerate(device, nullptr, &count, extensions.data()),
                "Vulkan lists no extensions");
        for (const VkExtensionProperties& extension : extensions) {
            if (std::strcmp(extension.extensionName, name) == 0) return true;
        }
        return false;
    }

 private:
    Loader loader_;
    VkInstance instance_ = nullptr;
    PFN_vkDestroyInstance destroy_ = nullptr;
};

// Device-local memory which the CPU can map, coherent, and not cached by it: the window through
// which the CPU sees the GPU's memory.
std::optional<std::uint32_t> mappable_type(const VkPhysicalDeviceMemoryProperties& memory) {
    constexpr VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                             VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                             VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
        const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
        if ((flags & wanted) == wanted && (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) == 0) {
            return i;
        }
    }
    return std::nullopt;
}

class ImportedVulkanMemory final : public VulkanMemory {
 public:
    explicit ImportedVulkanMemory(const Uuid& uuid) {
        const VkPhysicalDevice physical = instance_.find_physical_device(uuid);
        constexpr const char* extension = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
        if (!instance_.has_extension(physical, extension)) {
            throw Unavailable(fmt::format("the GPU's Vulkan driver lacks {}", extension));
        }

        VkPhysicalDeviceProperties properties{};
        find<PFN_vkGetPhysicalDeviceProperties>("vkGetPhysicalDeviceProperties")(physical,
                                                                                 &properties);
        allocations_left_ = properties.limits.maxMemoryAllocationCount;
        VkPhysicalDeviceMemoryProperties memory{};
        find<PFN_vkGetPhysicalDeviceMemoryProperties>("vkGetPhysicalDeviceMemoryProperties")(
            physical, &memory);
        const std::optional<std::uint32_t> type = mappable_type(memory);
        if (!type) throw Unavailable("the CPU cannot map this GPU's memory");
        type_ = *type;

        const float priority = 1;
        VkDeviceQueueCreateInfo queue{};
        queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
        queue.queueCount = 1;
        queue.pQueuePriorities = &priority;
        VkDeviceCreateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
        info.queueCreateInfoCount = 1;
        info.pQueueCreateInfos = &queue;
        info.enabledExtensionCount = 1;
        info.ppEnabledExtensionNames = &extension;
        // Looked up before the device exists, which would leak if one lacked.
        destroy_device_ = find<PFN_vkDestroyDevice>("vkDestroyDevice");
        allocate_ = find<PFN_vkAllocateMemory>("vkAllocateMemory");
        free_ = find<PFN_vkFreeMemory>("vkFreeMemory");
        map_ = find<PFN_vkMapMemory>("vkMapMemory");
        const auto device_function = find<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr");
        require(find<PFN_vkCreateDevice>("vkCreateDevice")(physical, &info, nullptr, &device_),
                "Vulkan does not open this GPU");
        get_fd_ =
            reinterpret_cast<PFN_vkGetMemoryFdKHR>(device_function(device_, "vkGetMemoryFdKHR"));
        if (get_fd_ == nullptr) {
            destroy_device_(device_, nullptr);
            throw Unavailable("Vulkan lacks vkGetMemoryFdKHR");
        }
    }
    ~ImportedVulkanMemory() override { destroy_device_(device_, nullptr); }

    bool allocate(std::uint64_t bytes, MappedMemory& out, std::string& why_not) override {
        MappedMemory memory{.bytes = bytes};
        try {
            fill(memory);
        } catch (const Unavailable& error) {
            release(memory);
            why_not = error.what();
            return false;
        }
        out = memory;
        return true;
    }

    void release(MappedMemory& memory) noexcept override {
        if (memory.device != nullptr) cudaFree(memory.device);
        if (memory.import != nullptr) {
            cudaDestroyExternalMemory(static_cast<cudaExternalMemory_t>(memory.import));
        }
        static_cast<void>(cudaGetLastError());
        if (memory.vulkan_memory != 0) {  // which also unmaps it
            free_(device_, reinterpret_cast<VkDeviceMemory>(memory.vulkan_memory), nullptr);
            ++allocations_left_;
        }
        memory = MappedMemory{};
    }

 private:
    template <class Function>
    Function find(const char* name) const {
        return instance_.find<Function>(name);
    }

    // What has been had when it throws is in `memory`.
    void fill(MappedMemory& memory) {
        if (allocations_left_ == 0) throw Unavailable("Vulkan allows no more allocations");
        VkExportMemoryAllocateInfo exported{};
        exported.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO;
        exported.handleTypes = handle_type;
        VkMemoryAllocateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
        info.pNext = &exported;
        info.allocationSize = memory.bytes;
        info.memoryTypeIndex = type_;
        VkDeviceMemory allocated = VK_NULL_HANDLE;
        require(allocate_(device_, &info, nullptr, &allocated), "no more memory can be mapped");
        memory.vulkan_memory = reinterpret_cast<std::uint64_t>(allocated);
        --allocations_left_;

        void* cpu = nullptr;
        require(map_(device_, allocated, 0, VK_WHOLE_SIZE, 0, &cpu), "no more can be mapped");
        memory.cpu = static_cast<std::byte*>(cpu);
        import(allocated, memory);
    }

    void import(VkDeviceMemory allocated, MappedMemory& memory) const {
        VkMemoryGetFdInfoKHR wanted{};
        wanted.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR;
        wanted.memory = allocated;
        wanted.handleType = handle_type;
        cudaExternalMemoryHandleDesc handle{};
        handle.type = cudaExternalMemoryHandleTypeOpaqueFd;
        handle.size = memory.bytes;
        require(get_fd_(device_, &wanted, &handle.handle.fd), "the memory cannot be exported");
        cudaExternalMemory_t imported = nullptr;
        if (const cudaError_t error = cudaImportExternalMemory(&imported, &handle);
            error != cudaSuccess) {  // otherwise the descriptor is CUDA's
            ::close(handle.handle.fd);
            throw Unavailable("CUDA does not import the memory: " + to_text(error));
        }
        memory.import = imported;

        cudaExternalMemoryBufferDesc whole{};
        whole.size = memory.bytes;
        void* device = nullptr;
        if (const cudaError_t error = cudaExternalMemoryGetMappedBuffer(&device, imported, &whole);
            error != cudaSuccess) {
            throw Unavailable("CUDA does not address the memory: " + to_text(error));
        }
        memory.device = static_cast<std::byte*>(device);
    }

    Instance instance_;
    VkDevice device_ = nullptr;
    std::uint32_t type_ = 0;
    std::uint32_t allocations_left_ = 0;
    PFN_vkDestroyDevice destroy_device_ = nullptr;
    PFN_vkAllocateMemory allocate_ = nullptr;
    PFN_vkFreeMemory free_ = nullptr;
    PFN_vkMapMemory map_ = nullptr;
    PFN_vkGetMemoryFdKHR get_fd_ = nullptr;
};

}  // namespace

std::unique_ptr<VulkanMemory> VulkanMemory::open(const Uuid& uuid, std::string& why_not) {
    try {
        return std::make_unique<ImportedVulkanMemory>(uuid);
    } catch (const Unavailable& error) {
        why_not = error.what();
        return nullptr;
    }
}

}  // namespace gpunbd::storage::cuda
