// An example of a device driver, to copy from. Each part has a comment that says what a driver has
// to do there. The tests of transfers run with it (letter 'e' of Rig).
//
// A driver of the program is a folder in storage/devices/, with a library in CMakeLists.txt and a
// line in storage/devices/drivers/device_drivers.cpp. Nothing else knows it by name.
#pragma once

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage::test {

const DeviceDriver& example_driver();

}  // namespace gpunbd::storage::test
