// GPU memory that the CPU can address: device-local, host-visible, and exported by an opaque
// descriptor, which CUDA imports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "storage/base/owned_fd.hpp"
#include "storage/devices/vulkan/base/instance.hpp"

namespace gpunbd::storage::vulkan {

// Not cached by the CPU: store in order with wide stores, and load only with streaming loads.
struct Mapping {
    std::byte* cpu = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t memory = 0;  // VkDeviceMemory
};

// Not thread-safe.
class VulkanMemory {
 public:
    // For the GPU with this UUID. On failure returns null and sets `reason`.
    static std::unique_ptr<VulkanMemory> open(const Uuid& uuid, std::string& reason);

    virtual ~VulkanMemory() = default;
    // On failure returns false and sets `reason`; unmapped memory may still be available.
    virtual bool allocate(std::uint64_t bytes, Mapping& out, std::string& reason) = 0;
    // A new descriptor each time. On failure returns none and sets `reason`.
    virtual OwnedFd export_descriptor(const Mapping& mapping, std::string& reason) = 0;
    // Maps memory of this size and type that another process has allocated and exported. The caller
    // keeps the descriptor.
    virtual bool import(const OwnedFd& descriptor, std::uint64_t bytes, std::uint32_t type,
                        Mapping& out, std::string& reason) = 0;
    // The memory must not be in use.
    virtual void release(Mapping& mapping) noexcept = 0;
    // The type for import(); less than 32.
    virtual std::uint32_t memory_type() const = 0;
};

}  // namespace gpunbd::storage::vulkan
