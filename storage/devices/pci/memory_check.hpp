// Checks that a BAR is backed by memory, with different memory for each byte. A window may be
// larger than its memory, which then appears at several addresses, or only at the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "storage/devices/store.hpp"

namespace gpunbd::storage {

// Writes each location's number, and then its complement, at the start of each step, at all smaller
// power-of-two distances, and at the end, and reads them back. Destroys the contents. `settle`
// makes stores reach the memory. `bytes` is a multiple of 4096. Returns the reason why it is not
// memory, in one line; empty: it is memory.
std::string reason_not_memory(std::byte* at, std::uint64_t bytes,
                              const std::function<void()>& settle = store_fence);

}  // namespace gpunbd::storage
