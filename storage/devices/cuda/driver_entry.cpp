#include "storage/devices/cuda/driver_entry.hpp"

#include <cuda_runtime_api.h>

namespace gpunbd::storage::cuda {

void* driver_entry(const char* name, [[maybe_unused]] unsigned version) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) return entry;
    static_cast<void>(cudaGetLastError());
    return nullptr;
}

}  // namespace gpunbd::storage::cuda
