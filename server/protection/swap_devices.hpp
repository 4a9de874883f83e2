// What this machine swaps to by the kernel's NBD client: its server may not end before that is
// over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpunbd::server {

struct SwapDevice {
    std::string path;         // "/dev/nbd0"
    std::uint64_t bytes = 0;  // of the whole device
    // What its client has told the kernel of the contents; empty: nothing.
    std::string backend = {};
};

// Whole devices, also those of which a partition, or something that lies on it, is swap; a swap
// file is not seen. `root`: where /proc and /sys are, for tests.
std::vector<SwapDevice> nbd_swap_devices(const std::string& root = "");

}  // namespace gpunbd::server
