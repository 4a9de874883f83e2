// Stores into write-combined mappings of device memory.
#pragma once

#include <cstddef>

namespace gpunbd::storage {

// Copies with wide non-temporal stores, in order. Visible to the device after a store fence.
void store_streaming(std::byte* to, const std::byte* from, std::size_t length);
// Copies out of a write-combined mapping with streaming loads, many times faster than memcpy there.
void load_streaming(std::byte* to, const std::byte* from, std::size_t length);
void store_fence();

}  // namespace gpunbd::storage
