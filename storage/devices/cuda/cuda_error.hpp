// CUDA's errors in words, and the calling thread's current device.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace gpunbd::storage::cuda {

// "cudaErrorIllegalAddress (an illegal memory access was encountered)"
std::string to_text(cudaError_t error);

// Throws std::runtime_error: "<what>: <error>".
void check(cudaError_t error, const char* what);

// Makes the device current for the calling thread. Costs nothing where it is already, as long as
// nobody else calls cudaSetDevice in this process.
cudaError_t use_device(int ordinal) noexcept;

// Has the context of `stream` failed for good? Only then does an error outlive being reported.
bool context_lost(cudaStream_t stream) noexcept;

}  // namespace gpunbd::storage::cuda
