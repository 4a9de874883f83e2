// Describes a copy for log lines.
#pragma once

#include <string>

#include "storage/devices/channel.hpp"

namespace gpunbd::storage {

// "a read of 4096 bytes at device address 0x7f0000000000"
std::string to_text(const Copy& copy);

}  // namespace gpunbd::storage
