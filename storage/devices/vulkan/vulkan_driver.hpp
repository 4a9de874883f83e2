// The driver of the `vulkan:N` devices.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::vulkan {

const DeviceDriver& vulkan_driver();

}  // namespace gpunbd::storage::vulkan
