#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "storage/devices/channel.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

// Handles driver errors of copies: they affect either one copy or the whole device.

// The copy could not be started on the stream. Sets its status and logs the error.
void refuse(Copy& copy, cudaError_t error, DeviceState& state, cudaStream_t stream);

// After a device fault, completion words are not written any more. Asks the stream instead.
// `oldest` is a copy in flight; null: nothing to check.
void ask(DeviceState& state, cudaStream_t stream, const Copy* oldest);

// CUDA errors as text, and the current device of the calling thread.

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
