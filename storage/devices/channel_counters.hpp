// What one channel has moved, by the way that it took; written by its worker alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "storage/counter.hpp"
#include "storage/devices/path_kind.hpp"

namespace gpunbd::storage {

struct ChannelCounters {
    static constexpr std::size_t in_place =
        path_kinds;  // a way: no copy, received into or sent from
    static constexpr std::size_t ways = path_kinds + 1;
    static constexpr std::size_t directions = 3;  // as Copy::Kind: read, write, zero

    struct Way {
        Counter copies;
        Counter bytes;
    };

    void moved(std::size_t way, std::size_t direction, std::uint64_t length) {
        Way& moved = by_way[way][direction];
        moved.copies.add();
        moved.bytes.add(length);
    }

    std::array<std::array<Way, directions>, ways> by_way;
    Counter failures;  // copies
};

}  // namespace gpunbd::storage
