// Selects the path of a copy: one table per device, in which the first row that matches decides.
// Calibration fills it, and people can read it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "storage/devices/path_kind.hpp"

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

}  // namespace gpunbd::storage
