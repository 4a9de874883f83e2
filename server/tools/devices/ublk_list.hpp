// The ublk devices of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpunbd::server {

struct UblkEntry {
    std::string path;        // "/dev/ublkb0"
    std::uint64_t size = 0;  // bytes
    std::string queues{};    // empty: the kernel tells it only to root
    std::string server{};    // likewise
};

// In the order of their numbers.
std::vector<UblkEntry> list_ublk();

}  // namespace gpunbd::server
