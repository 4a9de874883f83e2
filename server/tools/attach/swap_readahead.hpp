// Reads memory back from swap before swapoff, which itself waits for each read of about 32 KiB and
// is therefore slow over NBD.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::attach {

// Requests read-ahead of all swapped-out memory of processes and tmpfs, in large requests and in
// parallel. `swapped`: the amount. This is a hint: swapoff reads what read-ahead does not reach,
// and the kernel may drop the pages again if memory is short.
void read_swap_ahead(std::uint64_t swapped, const std::string& root);

}  // namespace gpunbd::attach
