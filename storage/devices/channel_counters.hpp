// What one channel has copied, by path. Only its worker writes these counters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "storage/assertions/assert.hpp"
#include "storage/base/counter.hpp"
#include "storage/devices/path_kind.hpp"

namespace gpunbd::storage {

struct ChannelCounters {
    static constexpr std::size_t in_place =
        path_kinds;  // an additional path: received into or sent from the mapping without a copy
    static constexpr std::size_t paths = path_kinds + 1;
    static constexpr std::size_t directions = 3;  // as in Copy::Kind: read, write, zero

    struct PathCounts {
        Counter copies;
        Counter bytes;
    };

    void moved(std::size_t path, std::size_t direction, std::uint64_t length) {
        GPUNBD_ASSERT(path < paths && direction < directions,
                      "each path and each direction has a counter");
        PathCounts& moved = by_path[path][direction];
        moved.copies.add();
        moved.bytes.add(length);
    }

    std::array<std::array<PathCounts, directions>, paths> by_path;
    Counter failures;  // failed copies
};

}  // namespace gpunbd::storage
