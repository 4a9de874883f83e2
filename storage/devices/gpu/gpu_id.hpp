// The ids of GPUs, the same for all drivers: "cuda:0", "cuda:GPU-" with the UUID, or "cuda:" with
// the PCI address of the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpunbd::storage {

// The canonical spelling of an id with this scheme, "cuda"; empty: the text is not such an id.
std::optional<std::string> parse_gpu_id(std::string_view scheme, std::string_view text);

// Whether a canonical id names the device with this number, DeviceInfo::hardware and
// DeviceInfo::address.
bool is_gpu_named(std::string_view id, std::uint32_t number, std::string_view hardware,
                  std::string_view address);

}  // namespace gpunbd::storage
