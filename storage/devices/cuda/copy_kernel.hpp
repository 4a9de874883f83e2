// The gather/scatter kernel: one launch copies many pieces between pinned host memory and device
// memory, and then stores a number in pinned memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "storage/devices/gpu/copy_unit.hpp"

namespace gpunbd::storage::cuda {

constexpr std::uint32_t max_copy_units = 160;  // per launch: they are kernel parameters

// `units` points to an array of max_copy_units, of which `count` > 0 are read before this returns.
// When all bytes are copied, `*counter` (pinned) becomes `number`. `blocks_done` is zeroed device
// memory for this stream only.
cudaError_t launch_copy_kernel(const CopyUnit* units, std::uint32_t count,
                               std::uint32_t* blocks_done, std::uint32_t* counter,
                               std::uint32_t number, cudaStream_t stream) noexcept;

}  // namespace gpunbd::storage::cuda
