// Swap on a device: made where the device is empty, and taken back.
#pragma once

#include <optional>
#include <string>

#include "server/attach/device.hpp"

namespace gpunbd::attach {

// Behind the kernel's compressed memory (zram is 100), before disks (below 0).
inline constexpr int swap_priority = 50;

// Writes a signature where there are zeroes; refuses what holds anything but swap.
std::optional<Failure> make_swap(const std::string& file, std::uint64_t size);
std::optional<Failure> swap_on(const Device& device);
// All that is swapped to it and its partitions comes back into memory, which may take its time.
std::optional<Failure> swap_off(const Device& device);

}  // namespace gpunbd::attach
