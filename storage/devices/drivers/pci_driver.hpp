// The `pci:ADDRESS/BAR` devices as one of the kinds that there are.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

const DeviceDriver& pci_driver();

}  // namespace gpunbd::storage
