#include "storage/devices/cuda/mapped_memory.hpp"

#include <cuda_runtime_api.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

// Duplicates the descriptor, since an import takes ownership. On failure returns none and sets
// `reason`.
OwnedFd another(const OwnedFd& descriptor, std::string& reason) {
    OwnedFd copy = OwnedFd::copy_of(descriptor);
    if (!copy) reason = std::strerror(errno);
    return copy;
}

bool import_export(vulkan::VulkanMemory& vulkan, std::uint64_t bytes, OwnedFd* kept,
                   MappedMemory& memory, std::string& reason) {
    OwnedFd descriptor = vulkan.export_descriptor(memory.mapping, reason);
    if (!descriptor) return false;
    OwnedFd copy;
    if (kept != nullptr && !(copy = another(descriptor, reason))) return false;
    if (!import_opaque(std::move(descriptor), bytes, memory.opaque, reason)) return false;
    if (kept != nullptr) *kept = std::move(copy);
    return true;
}

}  // namespace

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

bool allocate_mapped(vulkan::VulkanMemory& vulkan, std::uint64_t bytes, OwnedFd* kept,
                     MappedMemory& out, std::string& reason) {
    MappedMemory memory;
    if (!vulkan.allocate(bytes, memory.mapping, reason)) return false;
    if (!import_export(vulkan, bytes, kept, memory, reason)) {
        vulkan.release(memory.mapping);
        return false;
    }
    out = memory;
    return true;
}

bool take_over_unmapped(const OwnedFd& descriptor, std::uint64_t bytes, MappedMemory& out,
                        std::string& reason) {
    MappedMemory memory;
    OwnedFd copy = another(descriptor, reason);
    if (!copy || !import_opaque(std::move(copy), bytes, memory.opaque, reason)) return false;
    out = memory;
    return true;
}

void release_mapped(vulkan::VulkanMemory* vulkan, MappedMemory& memory) noexcept {
    release_opaque(memory.opaque);
    if (vulkan != nullptr) vulkan->release(memory.mapping);
    memory = MappedMemory{};
}

}  // namespace gpunbd::storage::cuda
