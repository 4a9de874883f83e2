#include "storage/devices/host/system_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

// The number after a name, as in "MemTotal: 16384 kB" or "inactive_file 4096".
std::optional<std::uint64_t> entry(const fs::path& path, const std::string& name) {
    std::ifstream file(path);
    std::string key;
    for (std::string rest; file >> key && std::getline(file, rest);) {
        if (key == name) return std::strtoull(rest.c_str(), nullptr, 10);
    }
    return std::nullopt;
}

// Empty if the file is missing or has no number, such as "max".
std::optional<std::uint64_t> number(const fs::path& path) {
    std::ifstream file(path);
    std::uint64_t value = 0;
    return file >> value ? std::optional(value) : std::nullopt;
}

struct Headroom {
    std::uint64_t limit = no_limit;
    std::uint64_t left = no_limit;

    void take_smaller(const Headroom& other) {
        limit = std::min(limit, other.limit);
        left = std::min(left, other.left);
    }
};

// The file and entry names of the two control group versions.
struct Version {
    const char* limits[2];
    const char* usage;
    const char* reclaimable;
};
constexpr Version version_1 = {{"memory.limit_in_bytes", "memory.limit_in_bytes"},
                               "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr Version version_2 = {{"memory.max", "memory.high"}, "memory.current", "inactive_file"};

Headroom headroom_in(const fs::path& group, const Version& version) {
    Headroom headroom;
    for (const char* limit : version.limits) {
        headroom.limit = std::min(headroom.limit, number(group / limit).value_or(no_limit));
    }
    if (headroom.limit == no_limit) return headroom;
    // The system drops cached files before it kills a process.
    const std::uint64_t used = number(group / version.usage).value_or(0);
    const std::uint64_t cached = entry(group / "memory.stat", version.reclaimable).value_or(0);
    const std::uint64_t held = used - std::min(used, cached);
    headroom.left = headroom.limit - std::min(headroom.limit, held);
    return headroom;
}

// The least headroom of the group and its ancestors. In a container, the path may be that of the
// outer system; the container's group is then the root of the mount.
Headroom headroom_up_from(const fs::path& group, const fs::path& mount, const Version& version) {
    Headroom headroom = headroom_in(mount, version);
    for (fs::path below = group.relative_path(); !below.empty(); below = below.parent_path()) {
        headroom.take_smaller(headroom_in(mount / below, version));
    }
    return headroom;
}

Headroom headroom_in_groups(const fs::path& root) {
    const fs::path mounts = root / "sys/fs/cgroup";
    Headroom headroom;
    std::ifstream file(root / "proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {  // ID:controllers:path
        const std::size_t controllers = line.find(':') + 1;
        const std::size_t path = line.find(':', controllers) + 1;
        if (controllers == 0 || path == 0) continue;
        const std::string names =
            fmt::format(",{},", line.substr(controllers, path - 1 - controllers));
        const fs::path group = line.substr(path);
        if (names == ",,") {
            headroom.take_smaller(headroom_up_from(group, mounts, version_2));
            headroom.take_smaller(headroom_up_from(group, mounts / "unified", version_2));
        } else if (names.find(",memory,") != std::string::npos) {
            headroom.take_smaller(headroom_up_from(group, mounts / "memory", version_1));
        }
    }
    return headroom;
}

std::uint64_t machine_bytes(const fs::path& root, const char* key) {
    return entry(root / "proc/meminfo", key).value_or(0) * 1024;
}

}  // namespace

std::uint64_t SystemMemory::total() const {
    return std::min(machine_bytes(root_, "MemTotal:"), headroom_in_groups(root_).limit);
}

std::uint64_t SystemMemory::available() const {
    return std::min(machine_bytes(root_, "MemAvailable:"), headroom_in_groups(root_).left);
}

}  // namespace gpunbd::storage
