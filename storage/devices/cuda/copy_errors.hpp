// Handles driver errors of copies: they affect either one copy or the whole device.
#pragma once

#include <cuda_runtime_api.h>

#include "storage/devices/channel.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

// The copy could not be started on the stream. Sets its status and logs the error.
void refuse(Copy& copy, cudaError_t error, DeviceState& state, cudaStream_t stream);

// After a device fault, completion words are not written any more. Asks the stream instead.
// `oldest` is a copy in flight; null: nothing to check.
void ask(DeviceState& state, cudaStream_t stream, const Copy* oldest);

}  // namespace gpunbd::storage::cuda
