// Who holds a device, so that it cannot be taken away: mounts, devices made of it, swap.
#pragma once

#include <string>
#include <vector>

#include "server/attach/device.hpp"

namespace gpunbd::attach {

// Of the device and its partitions, in words: "is mounted on /mnt", "is a part of dm-0". Mounts are
// those that this process sees.
std::vector<std::string> holders_of(const Device& device);

// The files that are swapped to: /dev/nbd0, or /dev/nbd0p1.
std::vector<std::string> swaps_on(const Device& device);

}  // namespace gpunbd::attach
