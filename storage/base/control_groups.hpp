// The control groups that limit this process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace gpunbd::storage {

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
