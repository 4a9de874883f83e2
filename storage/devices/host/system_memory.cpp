#include "storage/devices/host/system_memory.hpp"

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

// The number behind a name: "MemTotal: 16384 kB", "inactive_file 4096".
std::optional<std::uint64_t> entry(const fs::path& path, const std::string& name) {
    std::ifstream file(path);
    std::string key;
    for (std::string rest; file >> key && std::getline(file, rest);) {
        if (key == name) return std::strtoull(rest.c_str(), nullptr, 10);
    }
    return std::nullopt;
}

// No number where there is none: "max", or no such file.
std::optional<std::uint64_t> number(const fs::path& path) {
    std::ifstream file(path);
    std::uint64_t value = 0;
    return file >> value ? std::optional(value) : std::nullopt;
}

struct Room {
    std::uint64_t limit = no_limit;
    std::uint64_t left = no_limit;

    void take_smaller(const Room& other) {
        limit = std::min(limit, other.limit);
        left = std::min(left, other.left);
    }
};

// How the two versions of control groups call the same things.
struct Version {
    const char* limits[2];
    const char* usage;
    const char* reclaimable;
};
constexpr Version version_1 = {{"memory.limit_in_bytes", "memory.limit_in_bytes"},
                               "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr Version version_2 = {{"memory.max", "memory.high"}, "memory.current", "inactive_file"};

Room room_in(const fs::path& group, const Version& version) {
    Room room;
    for (const char* limit : version.limits) {
        room.limit = std::min(room.limit, number(group / limit).value_or(no_limit));
    }
    if (room.limit == no_limit) return room;
    // The system drops cached files before it lets anybody run out.
    const std::uint64_t used = number(group / version.usage).value_or(0);
    const std::uint64_t cached = entry(group / "memory.stat", version.reclaimable).value_or(0);
    const std::uint64_t held = used - std::min(used, cached);
    room.left = room.limit - std::min(room.limit, held);
    return room;
}

// Of the group and of all that it is in. Within a container the path may be the one that the system
// outside knows: its own group is then the top of what it sees.
Room room_up_from(const fs::path& group, const fs::path& mount, const Version& version) {
    Room room = room_in(mount, version);
    for (fs::path below = group.relative_path(); !below.empty(); below = below.parent_path()) {
        room.take_smaller(room_in(mount / below, version));
    }
    return room;
}

Room room_in_groups(const fs::path& root) {
    const fs::path mounts = root / "sys/fs/cgroup";
    Room room;
    std::ifstream file(root / "proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {  // number:controllers:path
        const std::size_t controllers = line.find(':') + 1;
        const std::size_t path = line.find(':', controllers) + 1;
        if (controllers == 0 || path == 0) continue;
        const std::string names = "," + line.substr(controllers, path - 1 - controllers) + ",";
        const fs::path group = line.substr(path);
        if (names == ",,") {
            room.take_smaller(room_up_from(group, mounts, version_2));
            room.take_smaller(room_up_from(group, mounts / "unified", version_2));
        } else if (names.find(",memory,") != std::string::npos) {
            room.take_smaller(room_up_from(group, mounts / "memory", version_1));
        }
    }
    return room;
}

std::uint64_t of_machine(const fs::path& root, const char* key) {
    return entry(root / "proc/meminfo", key).value_or(0) * 1024;
}

}  // namespace

std::uint64_t SystemMemory::total() const {
    return std::min(of_machine(root_, "MemTotal:"), room_in_groups(root_).limit);
}

std::uint64_t SystemMemory::available() const {
    return std::min(of_machine(root_, "MemAvailable:"), room_in_groups(root_).left);
}

}  // namespace gpunbd::storage
