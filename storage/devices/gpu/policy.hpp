// Selects the path of a copy: one table per device, in which the first row that matches decides.
// Calibration fills it, and people can read it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "storage/devices/channel.hpp"

namespace gpunbd::storage {

enum class Direction : std::uint8_t { read, write, zero };  // from the client's view

// The load when a copy is submitted.
enum class Load : std::uint8_t {
    alone,    // nothing else waits in the channel, and the copy engines are idle
    busy,     // nothing else waits, but copies of some channel use the copy engines
    several,  // more copies wait in the channel
};

struct Policy {
    static constexpr std::uint32_t any_size = std::numeric_limits<std::uint32_t>::max();

    struct Row {
        Direction direction;
        std::uint8_t loads;   // a bit set: 1 << Load
        std::uint32_t up_to;  // bytes
        PathKind path;
    };
    static constexpr std::uint8_t on(Load load) {
        return static_cast<std::uint8_t>(1U << static_cast<unsigned>(load));
    }
    static constexpr std::uint8_t any_load = 7;

    // Optional features of a copy, channel or driver.
    struct Features {
        bool mapping = false;
        bool kernels = true;
        bool persistent_kernel = false;  // implies `kernels`
        bool engine_batch = false;
    };

    // Skips rows whose path needs a missing feature. Without a matching row, the copy engines copy.
    PathKind choose(Direction direction, Load load, std::uint32_t bytes, Features means) const;
    // Whether any row has this path.
    bool uses(PathKind path) const;
    // The longest copy that any row assigns to a kernel.
    std::uint32_t max_for_kernel() const;

    std::vector<Row> rows;
};

// The longest write that is received directly in the mapping. Longer writes use staging memory,
// which stays in the CPU's cache. Measured on one H200, see server/PERFORMANCE.md.
inline constexpr std::uint32_t max_for_mapping = 256 << 10;  // bytes

// The policy that suits one H200; devices start with it.
Policy default_policy();
// Uses one path as far as possible, for measurements and tests.
Policy only(PathKind path);

// One line per row, each ending with a newline.
std::string to_text(const Policy& policy);

// Derives a policy and a chunk size from measured copy costs. The drivers do the measuring.

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
