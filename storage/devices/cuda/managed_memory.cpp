#include "storage/devices/cuda/managed_memory.hpp"

#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

#if CUDART_VERSION >= 13000
cudaMemLocation gpu(int ordinal) { return {cudaMemLocationTypeDevice, ordinal}; }
#else
int gpu(int ordinal) { return ordinal; }
#endif

void* pointer(MemoryRange range) { return reinterpret_cast<void*>(range.address); }

cudaError_t cleared(cudaError_t error) {
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return error;
}

}  // namespace

const char* reason_not_managed(int ordinal) noexcept {
    int concurrent = 0;
    const cudaError_t error =
        cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, ordinal);
    return cleared(error) == cudaSuccess && concurrent != 0
               ? ""
               : "the driver cannot move memory of this GPU while it is in use";
}

cudaError_t allocate_managed(int ordinal, std::uint64_t bytes, MemoryRange& out) noexcept {
    use_device(ordinal);
    void* memory = nullptr;
    const cudaError_t error = cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal);
    if (error != cudaSuccess) return cleared(error);
    out = {.address = reinterpret_cast<std::uintptr_t>(memory), .bytes = bytes};
    const cudaError_t advised =
        cudaMemAdvise(memory, bytes, cudaMemAdviseSetPreferredLocation, gpu(ordinal));
    if (advised != cudaSuccess) free_managed(out.address);
    return cleared(advised);
}

void free_managed(std::uint64_t address) noexcept {
    cleared(cudaFree(reinterpret_cast<void*>(address)));
}

cudaError_t fetch(int ordinal, MemoryRange range, cudaStream_t stream) noexcept {
    use_device(ordinal);
#if CUDART_VERSION >= 13000
    return cleared(cudaMemPrefetchAsync(pointer(range), range.bytes, gpu(ordinal), 0, stream));
#else
    return cleared(cudaMemPrefetchAsync(pointer(range), range.bytes, gpu(ordinal), stream));
#endif
}

}  // namespace gpunbd::storage::cuda
