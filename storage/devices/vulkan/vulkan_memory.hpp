// GPU memory that the CPU addresses too: device-local, host-visible, and told to others by an
// opaque descriptor. What copies on the GPU, such as CUDA, imports that and sees the same bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gpunbd::storage::vulkan {

// Uncached in the CPU: store in order and wide, load only by streaming loads.
struct Mapping {
    std::byte* cpu = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t memory = 0;  // VkDeviceMemory
};

// Not safe for use by several threads at once.
class VulkanMemory {
 public:
    using Uuid = std::array<unsigned char, 16>;

    // Of the GPU with this UUID. Null: `why_not` says why, in a few words.
    static std::unique_ptr<VulkanMemory> open(const Uuid& uuid, std::string& why_not);

    virtual ~VulkanMemory() = default;
    // False: `why_not` says why, in a few words; memory that is not mapped may still be had.
    virtual bool allocate(std::uint64_t bytes, Mapping& out, std::string& why_not) = 0;
    // A new one each time, the caller's. -1: `why_not` says why.
    virtual int export_descriptor(const Mapping& mapping, std::string& why_not) = 0;
    // Maps what another process has allocated like this and exported, of that size and memory type.
    // The descriptor stays the caller's.
    virtual bool import(int descriptor, std::uint64_t bytes, std::uint32_t type, Mapping& out,
                        std::string& why_not) = 0;
    // Nothing uses the memory any more.
    virtual void release(Mapping& mapping) noexcept = 0;
    // What import() has to be told; below 32.
    virtual std::uint32_t memory_type() const = 0;
};

}  // namespace gpunbd::storage::vulkan
