// The ublk devices of this machine.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::server {

struct UblkEntry {
    std::string path;  // "/dev/ublkb0"
    std::string size;
    std::string queues{};  // empty: the kernel tells it only to root
    std::string server{};  // likewise
};

// In the order of their numbers.
std::vector<UblkEntry> list_ublk();

}  // namespace gpunbd::server
