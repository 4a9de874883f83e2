// CUDA errors as text, and the current device of the calling thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace gpunbd::storage::cuda {

// "cudaErrorIllegalAddress (an illegal memory access was encountered)"
std::string to_text(cudaError_t error);

// Throws std::runtime_error: "<what>: <error>".
void check(cudaError_t error, const char* what);

// Makes the device current for the calling thread. Free if it is current already, provided that all
// code of this process uses this function instead of cudaSetDevice.
cudaError_t use_device(int ordinal) noexcept;

// Whether the context of `stream` has failed permanently. Only then does an error persist after it
// has been reported.
bool context_lost(cudaStream_t stream) noexcept;

}  // namespace gpunbd::storage::cuda
