// The driver of the `file:PATH` devices.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

const DeviceDriver& file_driver();

}  // namespace gpunbd::storage
