// The ids of Vulkan devices: "vulkan:0", or "vulkan:GPU-" with the UUID of the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpunbd::storage::vulkan {

// The canonical spelling; empty: the text is not such an id.
std::optional<std::string> parse_id(std::string_view text);
// For other programs' names of a device, in lower case: "amd0" -> "vulkan:0"; empty if unknown.
std::string guess_id(std::string_view text);

// DeviceInfo::identity, which is also an id, from DeviceInfo::hardware. It is not that of the same
// card as a CUDA device, whose kept contents are other memory.
std::string identity_of(std::string_view hardware);
// Whether a canonical id names the device with this number and DeviceInfo::hardware.
bool is_named(std::string_view id, std::uint32_t number, std::string_view hardware);

}  // namespace gpunbd::storage::vulkan
