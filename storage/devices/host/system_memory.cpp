#include "storage/devices/host/system_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "storage/base/control_groups.hpp"

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t least_unlimited = std::uint64_t{1} << 62;  // in version 1, without a limit

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
    const char* limit;
    const char* throttling_limit;  // null: there is none
    const char* usage;
    const char* reclaimable;
};
constexpr Version version_1 = {"memory.limit_in_bytes", nullptr, "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr Version version_2 = {"memory.max", "memory.high", "memory.current", "inactive_file"};

Headroom headroom_in(const fs::path& group, const Version& version) {
    Headroom headroom;
    for (const char* limit : {version.limit, version.throttling_limit}) {
        if (limit == nullptr) continue;
        const std::uint64_t bytes = number(group / limit).value_or(no_limit);
        if (bytes < least_unlimited) headroom.limit = std::min(headroom.limit, bytes);
    }
    if (headroom.limit == no_limit) return headroom;
    // The system drops cached files before it kills a process.
    const std::uint64_t used = number(group / version.usage).value_or(0);
    const std::uint64_t cached = entry(group / "memory.stat", version.reclaimable).value_or(0);
    const std::uint64_t held = used - std::min(used, cached);
    headroom.left = headroom.limit - std::min(headroom.limit, held);
    return headroom;
}

Headroom headroom_in_groups(const fs::path& root) {
    Headroom headroom;
    for (const ControlGroup& group : control_groups(root, "memory")) {
        headroom.take_smaller(headroom_in(
            group.folder, group.version == ControlGroup::Version::two ? version_2 : version_1));
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

bool SystemMemory::limited() const { return total() < machine_bytes(root_, "MemTotal:"); }

std::uint64_t SystemMemory::available() const {
    return std::min(machine_bytes(root_, "MemAvailable:"), headroom_in_groups(root_).left);
}

}  // namespace gpunbd::storage
