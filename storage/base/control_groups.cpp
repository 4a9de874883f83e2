#include "storage/base/control_groups.hpp"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace gpunbd::storage {

namespace fs = std::filesystem;

std::vector<ControlGroup> control_groups(const fs::path& root, std::string_view controller) {
    const fs::path mounts = root / "sys/fs/cgroup";
    std::vector<ControlGroup> groups;
    // In a container, the path may be that of the outer system; the container's group is then the
    // root of the mount.
    const auto add = [&](const fs::path& mount, const fs::path& group,
                         ControlGroup::Version version) {
        groups.push_back({mount, version});
        for (fs::path below = group.relative_path(); !below.empty(); below = below.parent_path()) {
            groups.push_back({mount / below, version});
        }
    };
    std::ifstream file(root / "proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {  // ID:controllers:path
        const std::size_t controllers = line.find(':') + 1;
        const std::size_t path = line.find(':', controllers) + 1;
        if (controllers == 0 || path == 0) continue;
        const std::string names =
            fmt::format(",{},", line.substr(controllers, path - 1 - controllers));
        const fs::path group = line.substr(path);
        if (names == ",,") {
            add(mounts, group, ControlGroup::Version::two);
            add(mounts / "unified", group, ControlGroup::Version::two);
        } else if (names.find(fmt::format(",{},", controller)) != std::string::npos) {
            add(mounts / controller, group, ControlGroup::Version::one);
        }
    }
    return groups;
}

}  // namespace gpunbd::storage
