#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace gpunbd::storage {

// The number of CPUs that this process can use.

// The least of the CPUs to which the calling thread is bound (by its affinity or a cpuset) and the
// CPU quotas of the control groups, rounded up; at least 1. `root`: where /proc and /sys are found.
unsigned usable_cpus(const std::filesystem::path& root);

// The same for this machine, as it was at the first call.
unsigned usable_cpus();

// The control groups that limit this process.
struct ControlGroup {
    enum class Version : std::uint8_t { one, two };

    std::filesystem::path folder;
    Version version = Version::two;
};

// The group of this process and its ancestors, whose limits apply as well. `controller`: "memory",
// for example. `root`: where /proc and /sys are found. A folder may be missing.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root,
                                         std::string_view controller);

}  // namespace gpunbd::storage
