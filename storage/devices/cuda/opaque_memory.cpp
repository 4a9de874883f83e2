#include "storage/devices/cuda/opaque_memory.hpp"

#include <cuda_runtime_api.h>

#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

bool import_opaque(OwnedFd descriptor, std::uint64_t bytes, OpaqueMemory& out,
                   std::string& reason) {
    cudaExternalMemoryHandleDesc handle{};
    handle.type = cudaExternalMemoryHandleTypeOpaqueFd;
    handle.size = bytes;
    handle.handle.fd = descriptor.get();
    cudaExternalMemory_t imported = nullptr;
    if (const cudaError_t error = cudaImportExternalMemory(&imported, &handle);
        error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        reason = "CUDA cannot import the memory: " + to_text(error);
        return false;
    }
    static_cast<void>(descriptor.release());  // CUDA owns it now
    OpaqueMemory memory{.import = imported};
    cudaExternalMemoryBufferDesc whole{};
    whole.size = bytes;
    void* device = nullptr;
    if (const cudaError_t error = cudaExternalMemoryGetMappedBuffer(&device, imported, &whole);
        error != cudaSuccess) {
        release_opaque(memory);
        reason = "CUDA cannot map the memory: " + to_text(error);
        return false;
    }
    memory.device = static_cast<std::byte*>(device);
    out = memory;
    return true;
}

void release_opaque(OpaqueMemory& memory) noexcept {
    if (memory.device != nullptr) cudaFree(memory.device);
    if (memory.import != nullptr) {
        cudaDestroyExternalMemory(static_cast<cudaExternalMemory_t>(memory.import));
    }
    static_cast<void>(cudaGetLastError());
    memory = OpaqueMemory{};
}

}  // namespace gpunbd::storage::cuda
