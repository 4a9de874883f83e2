#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/client/failure.hpp"

namespace gpunbd::attach {

// The swap areas of the machine, from /proc/swaps, and whether their contents fit into memory.
struct SwapArea {
    std::string file;
    std::uint64_t size = 0;  // in bytes
    std::uint64_t used = 0;
};

// `root`: the folder that contains proc; tests pass another one.
std::vector<SwapArea> read_swap_areas(const std::string& root);

// Fails if the contents of `area` do not fit into available memory plus the other areas, less a
// margin. Compressed memory does not count. In that case swapoff would trigger the OOM killer.
std::optional<Failure> no_room_for(const SwapArea& area, const std::string& root);

// The mounts in this mount namespace, from /proc/self/mountinfo.
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
