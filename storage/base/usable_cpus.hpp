// The number of CPUs that this process can use.
#pragma once

#include <filesystem>

namespace gpunbd::storage {

// The least of the CPUs to which the calling thread is bound (by its affinity or a cpuset) and the
// CPU quotas of the control groups, rounded up; at least 1. `root`: where /proc and /sys are found.
unsigned usable_cpus(const std::filesystem::path& root);

// The same for this machine, as it was at the first call.
unsigned usable_cpus();

}  // namespace gpunbd::storage
