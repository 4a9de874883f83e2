// Which way a copy takes: one table per device, read from top to bottom. The first row that fits
// decides. Calibration fills it; people can read it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "storage/devices/path_kind.hpp"

namespace gpunbd::storage {

enum class Direction : std::uint8_t { read, write, zero };  // as seen by the client

// What else goes on when a copy is submitted.
enum class Load : std::uint8_t {
    alone,    // nothing else waits in the channel, and the copy engines are idle
    busy,     // nothing else waits, but some channel's copies occupy the copy engines
    several,  // more copies wait in the channel
};

struct Policy {
    static constexpr std::uint32_t any_size = std::numeric_limits<std::uint32_t>::max();

    struct Row {
        Direction direction;
        std::uint8_t loads;   // a set: bit 1 << Load
        std::uint32_t up_to;  // bytes
        PathKind path;
    };
    static constexpr std::uint8_t on(Load load) {
        return static_cast<std::uint8_t>(1U << static_cast<unsigned>(load));
    }
    static constexpr std::uint8_t any_load = 7;

    // What not every copy, channel or driver has, or may use now.
    struct Means {
        bool mapping = false;
        bool kernels = true;
        bool persistent_kernel = false;  // where `kernels` is
        bool engine_batch = false;
    };

    // Rows whose path needs what is not there are passed over. A copy for which no row is left goes
    // to the copy engines, which take everything.
    PathKind choose(Direction direction, Load load, std::uint32_t bytes, Means means) const;
    // The longest copy that any row gives to a kernel, lingering or not.
    std::uint32_t max_for_kernel() const;

    std::vector<Row> rows;
};

// The longest write that is received straight into the mapping. Longer ones pass the pinned
// pipeline, whose staging memory stays in the CPU's cache: measured on one H200,
// server/PERFORMANCE.md.
inline constexpr std::uint32_t max_for_mapping = 256 << 10;  // bytes

// What one H200 was measured to like; devices start with it.
Policy default_policy();
// Everything takes one path as far as it can: for measurements and tests.
Policy only(PathKind path);

// One line per row, each ending with a newline.
std::string to_text(const Policy& policy);

}  // namespace gpunbd::storage
