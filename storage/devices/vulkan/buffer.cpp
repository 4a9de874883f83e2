#include "storage/devices/vulkan/buffer.hpp"

#include "storage/devices/vulkan/logical_device.hpp"

namespace gpunbd::storage::vulkan {

VkBufferUsageFlags Buffer::usage(const LogicalDevice& device) {
    VkBufferUsageFlags usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    if (device.physical().device_addresses) {
        usage |= VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    }
    return usage;
}

VkResult Buffer::create(const LogicalDevice& device, std::uint64_t bytes,
                        VkExternalMemoryHandleTypeFlags handle_type, VkBuffer& out) {
    VkExternalMemoryBufferCreateInfo external{};
    external.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO;
    external.handleTypes = handle_type;
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.pNext = handle_type != 0 ? &external : nullptr;
    info.size = bytes;
    info.usage = usage(device);
    info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
    if (device.families().size() > 1) {
        info.sharingMode = VK_SHARING_MODE_CONCURRENT;
        info.queueFamilyIndexCount = static_cast<std::uint32_t>(device.families().size());
        info.pQueueFamilyIndices = device.families().data();
    }
    return device.functions().CreateBuffer(device.get(), &info, nullptr, &out);
}

std::uint32_t Buffer::usable_types(const LogicalDevice& device,
                                   VkExternalMemoryHandleTypeFlags handle_type) {
    VkBuffer buffer = VK_NULL_HANDLE;
    constexpr std::uint64_t any_size = 64 << 10;
    require(create(device, any_size, handle_type, buffer), "it has no buffers");
    VkMemoryRequirements requirements{};
    device.functions().GetBufferMemoryRequirements(device.get(), buffer, &requirements);
    device.functions().DestroyBuffer(device.get(), buffer, nullptr);
    return requirements.memoryTypeBits;
}

VkResult Buffer::make(LogicalDevice& device, const Request& request, Buffer& out) {
    if (!device.take_allocation()) return VK_ERROR_TOO_MANY_OBJECTS;
    Buffer made;
    made.device_ = &device;
    const VkResult result = made.fill(device, request);
    if (result == VK_SUCCESS) out = std::move(made);
    return result;
}

VkResult Buffer::fill(LogicalDevice& device, const Request& request) {
    const DeviceFunctions& call = device.functions();
    VkResult result = create(device, request.bytes, request.handle_type, buffer_);
    if (result != VK_SUCCESS) return result;
    VkMemoryRequirements requirements{};
    call.GetBufferMemoryRequirements(device.get(), buffer_, &requirements);
    if ((requirements.memoryTypeBits >> request.type & 1) == 0) {
        return VK_ERROR_FEATURE_NOT_PRESENT;
    }

    VkExportMemoryAllocateInfo exported{};
    exported.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO;
    exported.pNext = request.imported;
    exported.handleTypes = request.handle_type;
    // Some drivers export only memory that belongs to one buffer.
    VkMemoryDedicatedAllocateInfo dedicated{};
    dedicated.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO;
    dedicated.pNext = request.exported ? &exported : request.imported;
    dedicated.buffer = buffer_;
    const bool is_host =
        request.handle_type == VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    const bool is_dedicated = request.handle_type != 0 && !is_host;
    VkMemoryAllocateFlagsInfo flags{};
    flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
    flags.pNext = is_dedicated ? &dedicated : request.imported;
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    info.pNext = device.physical().device_addresses ? &flags : flags.pNext;
    info.allocationSize = is_host ? request.bytes : requirements.size;
    info.memoryTypeIndex = request.type;
    result = call.AllocateMemory(device.get(), &info, nullptr, &memory_);
    if (result != VK_SUCCESS) return result;
    if (request.taken != nullptr) *request.taken = true;
    result = call.BindBufferMemory(device.get(), buffer_, memory_, 0);
    if (result == VK_SUCCESS && request.mapped) {
        void* cpu = nullptr;
        result = call.MapMemory(device.get(), memory_, 0, VK_WHOLE_SIZE, 0, &cpu);
        cpu_ = static_cast<std::byte*>(cpu);
    }
    if (result == VK_SUCCESS && device.physical().device_addresses) {
        VkBufferDeviceAddressInfo wanted{};
        wanted.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
        wanted.buffer = buffer_;
        address_ = call.GetBufferDeviceAddress(device.get(), &wanted);
    }
    return result;
}

Buffer::~Buffer() {
    if (device_ == nullptr) return;
    const DeviceFunctions& call = device_->functions();
    if (buffer_ != VK_NULL_HANDLE) call.DestroyBuffer(device_->get(), buffer_, nullptr);
    // Freeing also unmaps.
    if (memory_ != VK_NULL_HANDLE) call.FreeMemory(device_->get(), memory_, nullptr);
    device_->give_allocation_back();
}

}  // namespace gpunbd::storage::vulkan
