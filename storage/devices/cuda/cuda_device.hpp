// The `cuda:N` devices: memory of NVIDIA GPUs, mapped into the CPU's address space if possible.
// This header hides all CUDA types.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::cuda {

// The number of GPUs. If it is 0, `why_none` has the reason in one line. Never throws.
int cuda_device_count(std::string& why_none) noexcept;

// The ordinal of the GPU with this canonical id; nullopt: there is none. Throws std::runtime_error.
std::optional<int> find_cuda_device(std::string_view id);

// DeviceInfo::id becomes `id`, or "cuda:N" with the ordinal if `id` is empty. Throws
// std::runtime_error with one line about the missing requirement.
std::unique_ptr<Device> open_cuda_device(std::uint32_t number, int ordinal,
                                         const DeviceOptions& options, std::string id = {});

}  // namespace gpunbd::storage::cuda
