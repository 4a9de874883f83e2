#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

// DeviceInfo::identity of a GPU, the same for all drivers.

// "GPU-" and the UUID, in the format of nvidia-smi.
std::string gpu_identity(const std::array<unsigned char, 16>& uuid);

// Checks descriptors before they are imported as GPU memory.

// Rejects descriptors that a driver must not be given, since it would accept and own them. Empty:
// it may be GPU memory.
std::string reason_not_gpu_memory(const OwnedFd& descriptor);

// The ids of GPUs, the same for all drivers: "cuda:0", "cuda:GPU-" with the UUID, or "cuda:" with
// the PCI address of the device.

// The canonical spelling of an id with this scheme, "cuda"; empty: the text is not such an id.
std::optional<std::string> parse_gpu_id(std::string_view scheme, std::string_view text);

// Whether a canonical id names the device with this number, DeviceInfo::hardware and
// DeviceInfo::address.
bool is_gpu_named(std::string_view id, std::uint32_t number, std::string_view hardware,
                  std::string_view address);

}  // namespace gpunbd::storage
