// Finds graphics cards without a driver.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::storage {

// The PCI addresses of a vendor's display and 3D controllers, sorted. `vendor`: as in sysfs,
// "0x1002". `sysfs` is /sys except in tests.
std::vector<std::string> display_cards(std::string_view vendor, const std::string& sysfs = "/sys");

}  // namespace gpunbd::storage
