// The driver of the `host` device.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

const DeviceDriver& host_driver();

}  // namespace gpunbd::storage
