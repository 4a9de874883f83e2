// Detaches a device that is not in use.
#pragma once

#include <optional>

#include "server/tools/attach/device.hpp"

namespace gpunbd::attach {

// Ends swapping to the device and then disconnects it. On failure the device stays attached, but
// swap may be off.
std::optional<Failure> detach(const Device& device);
// Disconnects the device even if it is in use. Its users get I/O errors. The device exists until
// its last user closes it.
std::optional<Failure> detach_by_force(const Device& device);

}  // namespace gpunbd::attach
