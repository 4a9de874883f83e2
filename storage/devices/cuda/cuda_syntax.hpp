// The ids "cuda:N", with and without CUDA in the build.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::cuda {

DeviceSyntax cuda_syntax();

}  // namespace gpunbd::storage::cuda
