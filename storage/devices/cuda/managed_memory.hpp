// Memory that the driver moves between GPU and host (cudaMallocManaged). It moves pages to the host
// inside an allocation call of another program that would fail otherwise.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "storage/devices/gpu/revocable_slabs.hpp"

namespace gpunbd::storage::cuda {

// An empty text, or the reason why this GPU has none.
const char* reason_not_managed(int ordinal) noexcept;

// Its pages are allocated when they are accessed or fetched. They move to the GPU when it accesses
// them, and to the host when the CPU does. The address is the same for both.
cudaError_t allocate_managed(int ordinal, std::uint64_t bytes, MemoryRange& out) noexcept;
void free_managed(std::uint64_t address) noexcept;

// Moves pages to the GPU, in the order of the stream.
cudaError_t fetch(int ordinal, MemoryRange range, cudaStream_t stream) noexcept;

}  // namespace gpunbd::storage::cuda
