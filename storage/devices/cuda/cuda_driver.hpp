// The driver of the `cuda:N` devices. A build without CUDA links no_cuda_driver.cpp instead.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::cuda {

const DeviceDriver& cuda_driver();

}  // namespace gpunbd::storage::cuda
