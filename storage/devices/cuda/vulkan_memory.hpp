// GPU memory that the CPU addresses too: allocated by Vulkan, host-visible and device-local, and
// imported into CUDA. The copy engines, the kernels and the CPU see the same bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gpunbd::storage::cuda {

// Uncached in the CPU: store in order and wide, load only by streaming loads.
struct MappedMemory {
    std::byte* cpu = nullptr;
    std::byte* device = nullptr;  // the same place for CUDA
    std::uint64_t bytes = 0;
    std::uint64_t vulkan_memory = 0;  // VkDeviceMemory
    void* import = nullptr;           // cudaExternalMemory_t
};

// Not safe for use by several threads at once.
class VulkanMemory {
 public:
    using Uuid = std::array<unsigned char, 16>;

    // The CUDA device with this UUID is current. Null: `why_not` says why, in a few words.
    static std::unique_ptr<VulkanMemory> open(const Uuid& uuid, std::string& why_not);

    virtual ~VulkanMemory() = default;
    // False: `why_not` says why, in a few words; plain memory may still be had.
    virtual bool allocate(std::uint64_t bytes, MappedMemory& out, std::string& why_not) = 0;
    // The CUDA device is current, and nothing uses the memory any more.
    virtual void release(MappedMemory& memory) noexcept = 0;
};

}  // namespace gpunbd::storage::cuda
