// The arithmetic of calibration: from what copies were measured to cost to the paths that they
// take, and to the length that long ones are cut to. To measure is the affair of each kind of
// device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage {

// What copies of one size cost on each path, in microseconds: one alone, and a crowd of them.
struct CopyCosts {
    std::uint32_t bytes = 0;       // of each copy
    std::optional<double> by_cpu;  // one alone, through the mapping; nothing: there is none
    double engine = 0;
    double kernel = 0;
    double persistent = 0;
    double engine_crowd = 0;
    std::optional<double> batch_crowd;  // nothing: the driver has no such call
    double kernel_crowd = 0;
    double persistent_crowd = 0;
};

// The rates of long copies that are cut into chunks of one size, in GB/s.
struct ChunkRates {
    std::uint32_t bytes = 0;  // of each chunk
    double read = 0;
    double write = 0;
};

// Adds the rows of one direction. `table` goes from short copies to long ones; a path is taken up
// to the size before the first at which it loses.
void add_rows(Policy& policy, Direction direction, const std::vector<CopyCosts>& table);

// The shortest chunks that come close to the best rate in both directions: short ones keep the
// pipeline full and others waiting less. `table` goes from short chunks to long ones; not empty.
std::uint32_t choose_chunk_size(const std::vector<ChunkRates>& table);

// For people; each line ends with a newline.
std::string to_text(const char* title, const std::vector<CopyCosts>& table);
std::string to_text(const std::vector<ChunkRates>& table);

}  // namespace gpunbd::storage
