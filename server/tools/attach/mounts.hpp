// The mounts that this process sees, as /proc/self/mountinfo lists them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::attach {

struct Mount {
    std::string id;
    std::string parent;   // the id of the mount that it lies in
    std::string numbers;  // of the block device: 43:0
    std::string place;
    std::string type;  // of the file system
    std::string source;
};

// In the order in which they were mounted. `root`: where proc is; another one is for tests.
std::vector<Mount> read_mounts(const std::string& root);

// Decodes names as the kernel writes them in /proc: \040 is a space.
std::string unescaped(std::string_view text);

}  // namespace gpunbd::attach
