#include "storage/base/control_groups.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

constexpr double no_limit = std::numeric_limits<double>::infinity();

unsigned bound_to() {
    cpu_set_t cpus;
    // Fails on machines with more CPUs than the type has.
    if (::sched_getaffinity(0, sizeof cpus, &cpus) != 0) return std::thread::hardware_concurrency();
    return static_cast<unsigned>(CPU_COUNT(&cpus));
}

double quota_of(const ControlGroup& group) {
    double quota = 0;
    double period = 0;
    if (group.version == ControlGroup::Version::two) {
        std::ifstream(group.folder / "cpu.max") >> quota >> period;
    } else {
        std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;
        std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
    }
    // Without a limit, the files have "max" or -1.
    return quota > 0 && period > 0 ? quota / period : no_limit;
}

}  // namespace

unsigned usable_cpus(const fs::path& root) {
    double cpus = std::max(1U, bound_to());
    for (const ControlGroup& group : control_groups(root, "cpu")) {
        cpus = std::min(cpus, quota_of(group));
    }
    return static_cast<unsigned>(std::ceil(cpus));
}

unsigned usable_cpus() {
    static const unsigned cpus = usable_cpus("/");
    return cpus;
}

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
