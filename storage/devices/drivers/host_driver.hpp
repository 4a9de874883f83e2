// The `host` device as one of the kinds that there are.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

const DeviceDriver& host_driver();

}  // namespace gpunbd::storage
