#include "storage/migration/pressure_triggers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

// Stalls and the time in which they are summed, in microseconds. The kernel requires
// CAP_SYS_RESOURCE for times that are not a multiple of two seconds.
constexpr const char* triggers[] = {"some 150000 1000000", "some 300000 2000000"};

// In a container, the path may be that of the outer system; the container's group is then the root
// of the mount.
std::vector<fs::path> candidates(const fs::path& root) {
    std::vector<fs::path> out{root / "proc/pressure/memory"};
    constexpr std::string_view start = "0::";  // control groups, version 2
    std::ifstream groups(root / "proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        if (!line.starts_with(start)) continue;
        const fs::path group = fs::path(line.substr(start.size())).relative_path();
        for (const char* mount : {"sys/fs/cgroup", "sys/fs/cgroup/unified"}) {
            out.push_back(root / mount / group / "memory.pressure");
        }
    }
    return out;
}

// Empty, with errno set, on failure.
OwnedFd open_trigger(const fs::path& path) {
    OwnedFd file(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!file) return file;
    for (const char* trigger : triggers) {
        // With its null character: the kernel overwrites the last byte.
        if (::write(file.get(), trigger, std::strlen(trigger) + 1) > 0) return file;
        if (errno != EINVAL) break;
    }
    return {};
}

}  // namespace

PressureTriggers open_pressure_triggers(const fs::path& root) {
    PressureTriggers out;
    std::string why;
    for (const fs::path& path : candidates(root)) {
        OwnedFd file = open_trigger(path);
        if (!file) {
            if (why.empty()) why = fmt::format("{}: {}", path.native(), std::strerror(errno));
            continue;
        }
        out.files.push_back(std::move(file));
    }
    if (out.files.empty()) out.why_none = std::move(why);
    return out;
}

}  // namespace gpunbd::storage
