// The kinds of devices that this program knows. Nobody else asks which of them it was built with.
#pragma once

#include <span>

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

// In the order in which people are told of them; the host is the first.
std::span<const DeviceDriver* const> device_drivers();

}  // namespace gpunbd::storage
