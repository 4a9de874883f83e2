// The uses that prevent detaching a device: mounts, devices built on it, programs that have it
// open, and swap.
#pragma once

#include <string>
#include <vector>

#include "server/tools/attach/device.hpp"
#include "server/tools/attach/swap_areas.hpp"

namespace gpunbd::attach {

struct Holder {
    std::string what;    // "is mounted on /mnt", "is a part of dm-0 (secret)"
    std::string remedy;  // a command; empty if another remedy covers it
    bool is_program = false;
};

// The uses of the device, its partitions and the devices built on them. Uses that have to end first
// come last. Only mounts in this mount namespace and processes with readable file tables are found.
std::vector<Holder> holders_of(const Device& device);

// The uses, and the commands that end them, each joined to one line.
std::string joined_uses(const std::vector<Holder>& holders);
std::string joined_remedies(const std::vector<Holder>& holders);
Failure in_use(const Device& device, const std::vector<Holder>& holders);

// Swap areas on the device and its partitions: /dev/nbd0, or /dev/nbd0p1.
std::vector<SwapArea> swaps_on(const Device& device);

}  // namespace gpunbd::attach
