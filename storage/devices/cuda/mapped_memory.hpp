#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "storage/base/owned_fd.hpp"
#include "storage/devices/cuda/vulkan/vulkan_memory.hpp"

namespace gpunbd::storage::cuda {

// GPU memory that another API has allocated, imported into CUDA by an opaque descriptor.
struct OpaqueMemory {
    std::byte* device = nullptr;
    void* import = nullptr;  // cudaExternalMemory_t
};

// The CUDA device is current. Takes ownership of the descriptor even on failure. Returns false and
// sets `reason` on failure.
bool import_opaque(OwnedFd descriptor, std::uint64_t bytes, OpaqueMemory& out, std::string& reason);
// The CUDA device is current, and the memory is not in use.
void release_opaque(OpaqueMemory& memory) noexcept;

// GPU memory that the CPU can address: allocated and mapped by Vulkan, and imported into CUDA.
struct MappedMemory {
    vulkan::Mapping mapping;  // the CPU's side
    OpaqueMemory opaque;      // CUDA's side
};

// For all functions, the CUDA device of `vulkan` is current. On failure they return false, allocate
// nothing and set `reason`.

// `kept`: where to store a descriptor that outlives the process, or null.
bool allocate_mapped(vulkan::VulkanMemory& vulkan, std::uint64_t bytes, OwnedFd* kept,
                     MappedMemory& out, std::string& reason);
// Imports into CUDA what allocate_mapped() has allocated in another process. The caller keeps the
// descriptor, and maps the memory for the CPU with vulkan.import().
bool take_over_unmapped(const OwnedFd& descriptor, std::uint64_t bytes, MappedMemory& out,
                        std::string& reason);
// The memory must not be in use. `vulkan` may be null if there is no mapping.
void release_mapped(vulkan::VulkanMemory* vulkan, MappedMemory& memory) noexcept;

}  // namespace gpunbd::storage::cuda
