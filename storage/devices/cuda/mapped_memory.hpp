// GPU memory that the CPU addresses too: allocated and mapped by Vulkan, and imported into CUDA.
// The copy engines, the kernels and the CPU see the same bytes.
#pragma once

#include <cstdint>
#include <string>

#include "storage/devices/cuda/opaque_memory.hpp"
#include "storage/devices/vulkan/vulkan_memory.hpp"

namespace gpunbd::storage::cuda {

struct MappedMemory {
    vulkan::Mapping mapping;  // the CPU's side
    OpaqueMemory opaque;      // CUDA's side
};

// For all of these the CUDA device is current, and is that of `vulkan`. Where they give false,
// nothing has been had, and `why_not` says why, in a few words.

// `kept`: null, or where to put a descriptor that the memory outlives the process by.
bool allocate_mapped(vulkan::VulkanMemory& vulkan, std::uint64_t bytes, int* kept,
                     MappedMemory& out, std::string& why_not);
// CUDA's side of it, by a descriptor that allocate_mapped() has given in another process; it stays
// the caller's. The CPU's side is had by vulkan.import() of the same.
bool adopt_unmapped(int descriptor, std::uint64_t bytes, MappedMemory& out, std::string& why_not);
// Nothing uses the memory any more. `vulkan` may be null where there is no mapping.
void release_mapped(vulkan::VulkanMemory* vulkan, MappedMemory& memory) noexcept;

}  // namespace gpunbd::storage::cuda
