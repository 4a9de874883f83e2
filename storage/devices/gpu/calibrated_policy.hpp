// Derives a policy and a chunk size from measured copy costs. The drivers do the measuring.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage {

// The cost in microseconds of copies of one size on each path: one alone, and several at once.
// Infinite: the driver has no such path.
struct CopyCosts {
    std::uint32_t bytes = 0;       // of each copy
    std::optional<double> by_cpu;  // one alone, through the mapping; empty: there is no mapping
    double engine = 0;
    double kernel = 0;
    double persistent = 0;
    double engine_crowd = 0;
    std::optional<double> batch_crowd;  // empty: the driver has no batch call
    double kernel_crowd = 0;
    double persistent_crowd = 0;
};

// Rates in GB/s of long copies in chunks of one size.
struct ChunkRates {
    std::uint32_t bytes = 0;  // of each chunk
    double read = 0;
    double write = 0;
};

// Adds the rows of one direction. `table` is sorted by size. A path is used up to the last size
// before the first at which it loses.
void add_rows(Policy& policy, Direction direction, const std::vector<CopyCosts>& table);

// The smallest chunk size that comes close to the best rate in both directions: short chunks keep
// the pipeline full and shorten the waits of others. `table` is sorted by size and not empty.
std::uint32_t choose_chunk_size(const std::vector<ChunkRates>& table);

// Human-readable; each line ends with a newline.
std::string to_text(const char* title, const std::vector<CopyCosts>& table);
std::string to_text(const std::vector<ChunkRates>& table);

}  // namespace gpunbd::storage
