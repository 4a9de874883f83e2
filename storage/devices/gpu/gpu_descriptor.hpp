// Checks descriptors before they are imported as GPU memory.
#pragma once

#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

// Rejects descriptors that a driver must not be given, since it would accept and own them. Empty:
// it may be GPU memory.
std::string reason_not_gpu_memory(const OwnedFd& descriptor);

}  // namespace gpunbd::storage
