// Taking a device away, in the right order, and only where nobody is left who holds it.
#pragma once

#include <optional>

#include "server/tools/attach/device.hpp"

namespace gpunbd::attach {

// Swap is taken off it; then it is disconnected. A failure: it is as it was, but for swap.
std::optional<Failure> detach(const Device& device);
// Whoever holds it has errors from then on, and the kernel has the device until the last one lets
// go.
std::optional<Failure> detach_by_force(const Device& device);

}  // namespace gpunbd::attach
