// Is an NVIDIA card in this machine, whether or not a driver or CUDA is? Then what is missing can
// be named.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::storage {

// PCI addresses of NVIDIA's display and 3D controllers, sorted. `sysfs` is /sys but in tests.
std::vector<std::string> nvidia_cards(const std::string& sysfs = "/sys");

// The file in /dev by which programs open the card at that PCI address, "/dev/nvidia0"; empty where
// the driver does not tell. `procfs` is /proc but in tests.
std::string nvidia_file(const std::string& address, const std::string& procfs = "/proc");

// What to do so that a GPU can be used, in one phrase; empty where no card is there.
// `built_with_cuda`: then only the driver can be missing.
std::string gpu_remedy(const std::vector<std::string>& cards, bool built_with_cuda);

}  // namespace gpunbd::storage
