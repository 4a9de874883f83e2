// GPU memory that another API has allocated, imported into CUDA by an opaque descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage::cuda {

struct OpaqueMemory {
    std::byte* device = nullptr;
    void* import = nullptr;  // cudaExternalMemory_t
};

// The CUDA device is current. Takes ownership of the descriptor even on failure. Returns false and
// sets `reason` on failure.
bool import_opaque(OwnedFd descriptor, std::uint64_t bytes, OpaqueMemory& out, std::string& reason);
// The CUDA device is current, and the memory is not in use.
void release_opaque(OpaqueMemory& memory) noexcept;

}  // namespace gpunbd::storage::cuda
