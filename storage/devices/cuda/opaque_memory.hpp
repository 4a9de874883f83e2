// Memory of the GPU that something else has allocated, imported into CUDA by an opaque descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpunbd::storage::cuda {

struct OpaqueMemory {
    std::byte* device = nullptr;
    void* import = nullptr;  // cudaExternalMemory_t
};

// The CUDA device is current. Takes the descriptor in any case. False: `why_not` says why, in a few
// words.
bool import_opaque(int descriptor, std::uint64_t bytes, OpaqueMemory& out, std::string& why_not);
// The CUDA device is current, and nothing uses the memory any more.
void release_opaque(OpaqueMemory& memory) noexcept;

}  // namespace gpunbd::storage::cuda
