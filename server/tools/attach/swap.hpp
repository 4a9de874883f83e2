// Creates and enables swap on an empty device, and disables it.
#pragma once

#include <optional>
#include <string>

#include "server/tools/attach/device.hpp"
#include "server/tools/attach/holders.hpp"

namespace gpunbd::attach {

// Lower than compressed memory (zram has 100), higher than disks (below 0).
inline constexpr int swap_priority = 50;

// Writes a swap signature if the device is empty. Fails if it has other contents than swap.
std::optional<Failure> make_swap(const std::string& file, std::uint64_t size);
std::optional<Failure> swap_on(const Device& device);
// Moves all memory that is swapped out to the device and its partitions back to RAM, which may take
// minutes. Fails without an effect if it does not fit.
std::optional<Failure> swap_off(const Device& device);
std::optional<Failure> swap_off(const SwapArea& area, const std::string& root);

}  // namespace gpunbd::attach
