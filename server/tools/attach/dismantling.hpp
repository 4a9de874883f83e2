// Taking away all that lies on a device when the machine ends: mounts, swap, and the devices that
// device mapper and md have made of it.
#pragma once

#include <optional>

#include "server/tools/attach/device.hpp"

namespace gpunbd::attach {

// Does what it can, the topmost first. A failure: the first thing that is left. It waits for what
// has to be written.
std::optional<Failure> dismantle(const Device& device);

}  // namespace gpunbd::attach
