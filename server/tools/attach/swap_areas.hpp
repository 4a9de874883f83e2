// The swap areas of the machine, from /proc/swaps, and whether their contents fit into memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/tools/client/failure.hpp"

namespace gpunbd::attach {

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

}  // namespace gpunbd::attach
