// Findings about the GPUs of AMD and Intel for `gpunbd doctor`. Those of NVIDIA are findings of
// CUDA.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::vulkan {

// Empty: the machine has no such GPU.
diagnosis::Diagnoses diagnose_gpus(const DeviceDriver& driver, const diagnosis::Machine& machine);

// How the CPU reaches the memory of an opened GPU.
diagnosis::Diagnosis check_access(const DeviceInfo& gpu);

}  // namespace gpunbd::storage::vulkan
