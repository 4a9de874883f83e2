// Is what lies behind a BAR memory, and each byte of it a byte of its own? A window may be larger
// than what is behind it, which then answers at several addresses, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "storage/store.hpp"

namespace gpunbd::storage {

// Writes each place's own number, and then its inverse, at the start of each step, at distances of
// every power of two below that, and at the end; reads all of them between. What was there is gone.
// `settle`: has what was stored reach the memory. Empty: it is memory; else what it is instead, in
// one line. `bytes` is a multiple of 4096.
std::string why_no_memory(std::byte* at, std::uint64_t bytes,
                          const std::function<void()>& settle = store_fence);

}  // namespace gpunbd::storage
