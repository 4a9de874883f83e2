// Swap on a device: made where the device is empty, and taken back.
#pragma once

#include <optional>
#include <string>

#include "server/tools/attach/device.hpp"
#include "server/tools/attach/swap_areas.hpp"

namespace gpunbd::attach {

// Behind the kernel's compressed memory (zram is 100), before disks (below 0).
inline constexpr int swap_priority = 50;

// Writes a signature where there are zeroes; refuses what holds anything but swap.
std::optional<Failure> make_swap(const std::string& file, std::uint64_t size);
std::optional<Failure> swap_on(const Device& device);
// Brings all that is swapped to it and its partitions back into memory, which may take minutes; or
// begins nothing, where it would not fit.
std::optional<Failure> swap_off(const Device& device);
std::optional<Failure> swap_off(const SwapArea& area, const std::string& root);

}  // namespace gpunbd::attach
