// What holds a device, so that it cannot be taken away: mounts, devices made of it, programs that
// have it open, swap.
#pragma once

#include <string>
#include <vector>

#include "server/tools/attach/device.hpp"
#include "server/tools/attach/swap_areas.hpp"

namespace gpunbd::attach {

struct Holder {
    std::string what;    // "is mounted on /mnt", "is a part of dm-0 (secret)"
    std::string remedy;  // a command; empty: it goes with another one
    bool is_program = false;
};

// Of the device, its partitions and all that is made of them; what has to be given up first comes
// last. Mounts are those that this process sees, programs those of which it may see the files.
std::vector<Holder> holders_of(const Device& device);

// All that they are, and all that they ask for, each on one line.
std::string whats_of(const std::vector<Holder>& holders);
std::string remedies_of(const std::vector<Holder>& holders);

// Those on the device and its partitions: /dev/nbd0, or /dev/nbd0p1.
std::vector<SwapArea> swaps_on(const Device& device);

}  // namespace gpunbd::attach
