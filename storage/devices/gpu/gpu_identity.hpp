// DeviceInfo::identity of a GPU, the same for all drivers.
#pragma once

#include <array>
#include <string>

namespace gpunbd::storage {

// "GPU-" and the UUID, in the format of nvidia-smi.
std::string gpu_identity(const std::array<unsigned char, 16>& uuid);

}  // namespace gpunbd::storage
