#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::storage {

// Finds graphics cards without a driver.

// The PCI addresses of a vendor's display and 3D controllers, sorted. `vendor`: as in sysfs,
// "0x1002". `sysfs` is /sys except in tests.
std::vector<std::string> display_cards(std::string_view vendor, const std::string& sysfs = "/sys");

// Finds NVIDIA cards without a driver or CUDA, so that messages can name the missing software.

// The PCI addresses of NVIDIA display and 3D controllers, sorted. `sysfs` is /sys except in tests.
std::vector<std::string> nvidia_cards(const std::string& sysfs = "/sys");

// The device file of the card at that PCI address, such as "/dev/nvidia0"; empty: the driver does
// not list it. `procfs` is /proc except in tests.
std::string nvidia_file(const std::string& address, const std::string& procfs = "/proc");

// The remedy that makes a GPU usable, in one phrase; empty: there is no card. `built_with_cuda`:
// only the driver can be missing.
std::string gpu_remedy(const std::vector<std::string>& cards, bool built_with_cuda);

}  // namespace gpunbd::storage
