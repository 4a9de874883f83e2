// The `cuda:N` devices: memory of NVIDIA GPUs, mapped into the CPU's address space where that can
// be had. No CUDA type is seen from here on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "storage/devices/device.hpp"
#include "storage/devices/gpu/competition.hpp"
#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage::cuda {

struct CudaDeviceOptions {
    std::optional<std::uint64_t> reserve;   // bytes left to the GPU's other users
    std::optional<std::uint64_t> capacity;  // bytes taken at most
    // Bytes mapped into the CPU's address space at most; 0: none, unset: what can be.
    std::optional<std::uint64_t> mapped;
    GpuUse gpu_use = GpuUse::automatic;
};

// How many GPUs there are. 0: `why_none` says why, in one line. Never throws.
int cuda_device_count(std::string& why_none) noexcept;

// Throws std::runtime_error, with one line that says what is missing.
std::unique_ptr<Device> open_cuda_device(std::uint32_t number, int ordinal,
                                         const CudaDeviceOptions& options);

struct CalibrationResult {
    Policy policy;
    std::uint32_t chunk_size = 0;  // bytes: the shortest copy that reaches the link's speed
    std::string table;             // the measurements and the policy, for people
};

// Measures every path of a device that open_cuda_device() opened, in under a second, and makes what
// it finds the policy of channels opened from now on. No channel of the device may be in use
// meanwhile. Throws std::runtime_error.
CalibrationResult calibrate_cuda_device(Device& device);

// A channel that follows another policy than its device's: for measurements and tests.
std::unique_ptr<Channel> open_cuda_channel(Device& device, const ChannelOptions& options,
                                           const Policy& policy);

}  // namespace gpunbd::storage::cuda
