// Finds the swap devices of this machine that use the kernel's NBD client or ublk. Their server
// must not end before swapoff.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpunbd::server {

struct SwapDevice {
    std::string path;         // "/dev/nbd0", "/dev/ublkb0"
    std::uint64_t bytes = 0;  // of the whole device
    // The identifier of the contents that the client passed to the kernel; empty: none.
    std::string backend = {};
};

// Returns whole devices, also if a partition or a stacked device on them is used as swap. Swap
// files are not found. `root` replaces / in tests.
std::vector<SwapDevice> served_swap_devices(const std::string& root = "");

}  // namespace gpunbd::server
