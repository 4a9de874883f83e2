#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::cuda {

// The ids "cuda:N", with and without CUDA in the build.

config::DriverInfo cuda_info();

// Checks NVIDIA's cards, their driver and the devices of `cuda:N`, with and without CUDA in the
// build.

diagnosis::Diagnoses diagnose_cards(const DeviceDriver& driver, const diagnosis::Machine& machine);
// The CPU's access to the memory of an open GPU.
diagnosis::Diagnosis check_mapping(const DeviceInfo& gpu);

}  // namespace gpunbd::storage::cuda
