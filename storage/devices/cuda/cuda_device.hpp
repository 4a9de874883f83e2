// The `cuda:N` devices: memory of NVIDIA GPUs, mapped into the CPU's address space if possible.
// This header hides all CUDA types.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::cuda {

// The number of GPUs. If it is 0, `why_none` has the reason in one line. Never throws.
int cuda_device_count(std::string& why_none) noexcept;

// Throws std::runtime_error with one line about the missing requirement.
std::unique_ptr<Device> open_cuda_device(std::uint32_t number, int ordinal,
                                         const DeviceOptions& options);

}  // namespace gpunbd::storage::cuda
