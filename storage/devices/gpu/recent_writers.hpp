// Counts the threads whose recent writes GPUs have fetched, over all GPUs, since all of them snoop
// the same caches.
#pragma once

#include <chrono>
#include <cstdint>

namespace gpunbd::storage {

// Counts the calling thread in the current period of two milliseconds, and returns how many threads
// were counted in the period before. Any thread; does not block.
std::uint32_t count_writer(std::chrono::steady_clock::time_point now);

}  // namespace gpunbd::storage
