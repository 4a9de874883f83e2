// What becomes of an error that the driver tells of a copy: it is that copy's alone, or the whole
// device has failed.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "storage/devices/channel.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

// The copy could not be started on the stream: its status says so, and so does the log.
void refuse(Copy& copy, cudaError_t error, DeviceState& state, cudaStream_t stream);

// After a fault on the device the words that tell of ends never come. The stream tells. `oldest`:
// in flight on it, or null: there is nothing to ask.
void ask(DeviceState& state, cudaStream_t stream, const Copy* oldest);

// "a read of 4096 bytes at device address 0x7f0000000000"
std::string to_text(const Copy& copy);

}  // namespace gpunbd::storage::cuda
