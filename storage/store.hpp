// What the CPU does with memory that a device shares with it: mappings of device memory, which are
// write-combined, and staging memory.
#pragma once

#include <cstddef>

namespace gpunbd::storage {

// Copies with wide non-temporal stores, in order. Visible to the device after a store fence.
void store_streaming(std::byte* to, const std::byte* from, std::size_t length);
// Copies out of a write-combined mapping with streaming loads, many times faster than memcpy there.
void load_streaming(std::byte* to, const std::byte* from, std::size_t length);
void store_fence();

// Hands memory that this CPU has just filled to the caches that all share, where a device's reads
// find it sooner than in the CPU's own. A hint: it changes no byte, and where the CPU has no such
// instruction (x86: CLDEMOTE) it does nothing.
void demote(const std::byte* memory, std::size_t length);

}  // namespace gpunbd::storage
