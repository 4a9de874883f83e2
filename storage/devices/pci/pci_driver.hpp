// The driver of the `pci:ADDRESS/BAR` devices.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

const DeviceDriver& pci_driver();

}  // namespace gpunbd::storage
