// Brings memory back from swap ahead of swapoff, which itself reads some 32 KiB at a time and waits
// for each: over NBD that is mostly waiting.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::attach {

// Asks the kernel to read all that processes and tmpfs have swapped out, in large requests and many
// at once. `swapped`: how much that is. A hint: what it cannot reach, swapoff reads. The pages that
// are read can be dropped again where memory is short.
void read_swap_ahead(std::uint64_t swapped, const std::string& root);

}  // namespace gpunbd::attach
