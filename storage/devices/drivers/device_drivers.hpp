// The table of device drivers: the only place that knows which drivers the program is built with.
#pragma once

#include <span>

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

// In the order in which they are listed for users.
std::span<const DeviceDriver* const> device_drivers();
// Describes them to the configuration. Call it once, before a configuration or a command line is
// parsed.
void register_device_drivers();

}  // namespace gpunbd::storage
