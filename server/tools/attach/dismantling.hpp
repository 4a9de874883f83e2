// Removes all uses of a disk when the machine shuts down: mounts, swap, and device mapper and md
// devices built on it.
#pragma once

#include <optional>
#include <string>

#include "server/tools/client/failure.hpp"

namespace gpunbd::attach {

// Removes as much as possible, from the top of the stack down. Returns the first failure. Blocks
// until dirty data is written. `disk`: its name in the kernel; `root`: the folder that contains sys
// and proc.
std::optional<Failure> dismantle(const std::string& disk, const std::string& root = "/");

}  // namespace gpunbd::attach
