// The ids "cuda:N", with and without CUDA in the build.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::cuda {

config::DriverInfo cuda_info();

}  // namespace gpunbd::storage::cuda
