#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::vulkan {

// Findings about the GPUs of AMD and Intel for `gpunbd doctor`. Those of NVIDIA are findings of
// CUDA.

// Empty: the machine has no such GPU.
diagnosis::Diagnoses diagnose_gpus(const DeviceDriver& driver, const diagnosis::Machine& machine);

// How the CPU reaches the memory of an opened GPU.
diagnosis::Diagnosis check_access(const DeviceInfo& gpu);

// The driver of the `vulkan:N` devices.

const DeviceDriver& vulkan_driver();

}  // namespace gpunbd::storage::vulkan
