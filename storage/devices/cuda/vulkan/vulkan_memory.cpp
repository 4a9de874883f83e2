#include "storage/devices/cuda/vulkan/vulkan_memory.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "storage/base/private_memory.hpp"
#include "storage/devices/vulkan/base/instance.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr VkExternalMemoryHandleTypeFlagBits handle_type =
    VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;

// The type of device-local memory that the CPU can map, coherent and uncached: the BAR window to
// GPU memory.
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

class OpenedMemory final : public VulkanMemory {
 public:
    explicit OpenedMemory(const Uuid& uuid) {
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
        // Looked up before the device is created, which would leak if the function were missing.
        destroy_device_ = find<PFN_vkDestroyDevice>("vkDestroyDevice");
        allocate_ = find<PFN_vkAllocateMemory>("vkAllocateMemory");
        free_ = find<PFN_vkFreeMemory>("vkFreeMemory");
        map_ = find<PFN_vkMapMemory>("vkMapMemory");
        const auto device_function = find<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr");
        require(find<PFN_vkCreateDevice>("vkCreateDevice")(physical, &info, nullptr, &device_),
                "Vulkan cannot open this GPU");
        get_fd_ =
            reinterpret_cast<PFN_vkGetMemoryFdKHR>(device_function(device_, "vkGetMemoryFdKHR"));
        if (get_fd_ == nullptr) {
            destroy_device_(device_, nullptr);
            throw Unavailable("Vulkan lacks vkGetMemoryFdKHR");
        }
    }
    ~OpenedMemory() override { destroy_device_(device_, nullptr); }

    bool allocate(std::uint64_t bytes, Mapping& out, std::string& reason) override {
        VkExportMemoryAllocateInfo exported{};
        exported.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO;
        exported.handleTypes = handle_type;
        return take(bytes, &exported, "no more memory can be mapped", out, reason);
    }

    OwnedFd export_descriptor(const Mapping& mapping, std::string& reason) override {
        VkMemoryGetFdInfoKHR wanted{};
        wanted.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR;
        wanted.memory = reinterpret_cast<VkDeviceMemory>(mapping.memory);
        wanted.handleType = handle_type;
        int descriptor = -1;
        const VkResult result = get_fd_(device_, &wanted, &descriptor);
        if (result != VK_SUCCESS) {
            reason = fmt::format("the memory cannot be exported: Vulkan error {}",
                                 static_cast<int>(result));
            return {};
        }
        ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
        return OwnedFd(descriptor);
    }

    bool import(const OwnedFd& descriptor, std::uint64_t bytes, std::uint32_t type, Mapping& out,
                std::string& reason) override {
        if (type != type_) {
            reason = fmt::format("its memory type is {}, and only type {} can be mapped now", type,
                                 type_);
            return false;
        }
        VkImportMemoryFdInfoKHR imported{};
        imported.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR;
        imported.handleType = handle_type;
        OwnedFd copy = OwnedFd::copy_of(descriptor);
        if (!copy) {
            reason = std::strerror(errno);
            return false;
        }
        imported.fd = copy.get();
        const bool mapped = take(bytes, &imported, "Vulkan cannot import it", out, reason);
        if (taken_over_) static_cast<void>(copy.release());  // Vulkan owns the descriptor now
        return mapped;
    }

    void release(Mapping& mapping) noexcept override {
        if (mapping.memory != 0) {  // freeing also unmaps
            free_(device_, reinterpret_cast<VkDeviceMemory>(mapping.memory), nullptr);
            ++allocations_left_;
        }
        mapping = Mapping{};
    }

    std::uint32_t memory_type() const override { return type_; }

 private:
    template <class Function>
    Function find(const char* name) const {
        return instance_.find<Function>(name);
    }

    // `how` is chained to the allocation. On failure nothing is allocated.
    bool take(std::uint64_t bytes, const void* how, const char* what, Mapping& out,
              std::string& reason) {
        Mapping mapping{.bytes = bytes};
        taken_over_ = false;
        try {
            fill(mapping, how, what);
        } catch (const Unavailable& error) {
            release(mapping);
            reason = error.what();
            return false;
        }
        out = mapping;
        return true;
    }

    // If it throws, `mapping` owns the partial allocations.
    void fill(Mapping& mapping, const void* how, const char* what) {
        if (allocations_left_ == 0) throw Unavailable("Vulkan allows no more allocations");
        VkMemoryAllocateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
        info.pNext = how;
        info.allocationSize = mapping.bytes;
        info.memoryTypeIndex = type_;
        VkDeviceMemory allocated = VK_NULL_HANDLE;
        require(allocate_(device_, &info, nullptr, &allocated), what);
        taken_over_ = true;
        mapping.memory = reinterpret_cast<std::uint64_t>(allocated);
        --allocations_left_;

        void* cpu = nullptr;
        require(map_(device_, allocated, 0, VK_WHOLE_SIZE, 0, &cpu), "no more can be mapped");
        mapping.cpu = static_cast<std::byte*>(cpu);
        exclude_from_forks(cpu, mapping.bytes);
    }

    Instance instance_;
    VkDevice device_ = nullptr;
    std::uint32_t type_ = 0;
    std::uint32_t allocations_left_ = 0;
    bool taken_over_ = false;  // Vulkan owns the descriptor that was imported last
    PFN_vkDestroyDevice destroy_device_ = nullptr;
    PFN_vkAllocateMemory allocate_ = nullptr;
    PFN_vkFreeMemory free_ = nullptr;
    PFN_vkMapMemory map_ = nullptr;
    PFN_vkGetMemoryFdKHR get_fd_ = nullptr;
};

}  // namespace

std::unique_ptr<VulkanMemory> VulkanMemory::open(const Uuid& uuid, std::string& reason) {
    try {
        return std::make_unique<OpenedMemory>(uuid);
    } catch (const Unavailable& error) {
        reason = error.what();
        return nullptr;
    }
}

}  // namespace gpunbd::storage::vulkan
