// The `cuda:N` devices as one of the kinds that there are. Whether they are built in, the linker
// decides; seen from here there is no difference.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::cuda {

const DeviceDriver& cuda_driver();

}  // namespace gpunbd::storage::cuda
