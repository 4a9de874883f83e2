// Removes all uses of a device when the machine shuts down: mounts, swap, and device mapper and md
// devices built on it.
#pragma once

#include <optional>

#include "server/tools/attach/device.hpp"

namespace gpunbd::attach {

// Removes as much as possible, from the top of the stack down. Returns the first failure. Blocks
// until dirty data is written.
std::optional<Failure> dismantle(const Device& device);

}  // namespace gpunbd::attach
