// A buffer with memory of its own. It is move-only and does not throw in its destructor, which does
// not wait for commands that use the buffer.
#pragma once

#include <vulkan/vulkan.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpunbd::storage::vulkan {

class LogicalDevice;

class Buffer {
 public:
    // How its memory is allocated.
    struct Request {
        std::uint64_t bytes = 0;
        std::uint32_t type = 0;
        bool mapped = false;  // into the CPU's address space
        // Memory that is exported, or imported by `imported`. 0: neither.
        VkExternalMemoryHandleTypeFlags handle_type = 0;
        const void* imported = nullptr;  // chained to the allocation
        bool exported = false;
        bool* taken = nullptr;  // set to true once the memory is allocated, even if make() fails
    };

    Buffer() = default;
    // On failure `out` is unchanged.
    static VkResult make(LogicalDevice& device, const Request& request, Buffer& out);
    // The usage of all buffers.
    static VkBufferUsageFlags usage(const LogicalDevice& device);
    // The memory types that buffers can have, a bit for each, with Request::handle_type. Throws
    // Unavailable.
    static std::uint32_t usable_types(const LogicalDevice& device,
                                      VkExternalMemoryHandleTypeFlags handle_type);
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        Buffer old(std::move(other));
        swap(old);
        return *this;
    }
    ~Buffer();

    explicit operator bool() const { return device_ != nullptr; }
    VkBuffer get() const { return buffer_; }
    VkDeviceMemory memory() const { return memory_; }
    std::byte* cpu() const { return cpu_; }  // null: not mapped
    // In shaders; 0: the device has no addresses.
    VkDeviceAddress address() const { return address_; }

 private:
    // A buffer without memory.
    static VkResult create(const LogicalDevice& device, std::uint64_t bytes,
                           VkExternalMemoryHandleTypeFlags handle_type, VkBuffer& out);
    VkResult fill(LogicalDevice& device, const Request& request);
    void swap(Buffer& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(buffer_, other.buffer_);
        std::swap(memory_, other.memory_);
        std::swap(cpu_, other.cpu_);
        std::swap(address_, other.address_);
    }

    LogicalDevice* device_ = nullptr;
    VkBuffer buffer_ = VK_NULL_HANDLE;
    VkDeviceMemory memory_ = VK_NULL_HANDLE;
    std::byte* cpu_ = nullptr;
    VkDeviceAddress address_ = 0;
};

}  // namespace gpunbd::storage::vulkan
