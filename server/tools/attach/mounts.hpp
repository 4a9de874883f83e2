// The mounts in this mount namespace, from /proc/self/mountinfo.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::attach {

struct Mount {
    std::string id;
    std::string parent;   // the id of the parent mount
    std::string numbers;  // of the block device: 43:0
    std::string place;
    std::string type;  // of the file system
    std::string source;
};

// In mount order. `root`: the folder that contains proc; tests pass another one.
std::vector<Mount> read_mounts(const std::string& root);

// Decodes the octal escapes of names in /proc: \040 is a space.
std::string unescaped(std::string_view text);

}  // namespace gpunbd::attach
