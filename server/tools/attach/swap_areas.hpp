// What the machine swaps to, as /proc/swaps lists it, and whether it fits into memory.
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

// `root`: where proc is; another one is for tests.
std::vector<SwapArea> read_swap_areas(const std::string& root);

// A failure: what is swapped to `area` would not fit into memory and the other areas that are no
// memory themselves, less a margin. swapoff would end in the OOM killer then.
std::optional<Failure> no_room_for(const SwapArea& area, const std::string& root);

}  // namespace gpunbd::attach
