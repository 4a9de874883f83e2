// How many threads have lately had GPUs fetch what they had just written, all GPUs together: they
// search the caches of one machine.
#pragma once

#include <chrono>
#include <cstdint>

namespace gpunbd::storage {

// Counts the calling thread in the period of two milliseconds that `now` lies in; returns how many
// threads were counted in the period before. Any thread; waits for none.
std::uint32_t note_writer(std::chrono::steady_clock::time_point now);

}  // namespace gpunbd::storage
