// The ids of Vulkan devices (see gpu_id.hpp) by other names.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::storage::vulkan {

// For other programs' names of a device, in lower case: "amd0" -> "vulkan:0"; empty if unknown.
std::string guess_id(std::string_view text);

// DeviceInfo::identity, which is also an id, from DeviceInfo::hardware. It is not that of the same
// card as a CUDA device, whose kept contents are other memory.
std::string identity_of(std::string_view hardware);

}  // namespace gpunbd::storage::vulkan
