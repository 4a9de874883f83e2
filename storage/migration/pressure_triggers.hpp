// Descriptors by which the kernel reports that programs wait for memory (pressure stall
// information).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

struct PressureTriggers {
    // poll() returns POLLPRI for each of them after programs have waited for 15% of a second or
    // two, and POLLERR when it will report nothing any more.
    std::vector<OwnedFd> files;
    std::string why_none;  // not empty: why there are no files
};

// Of the system and of this process's control group. `root`: where /proc and /sys are found.
PressureTriggers open_pressure_triggers(const std::filesystem::path& root);

}  // namespace gpunbd::storage
