// The file of a `file:` device is read, written and encrypted in blocks.
#pragma once

#include <cstdint>

namespace gpunbd::storage {

inline constexpr std::uint64_t block_bytes = 4096;  // as direct I/O needs it

struct BlockRange {
    std::uint64_t first = 0;  // block number: the offset in the file divided by block_bytes
    std::uint64_t end = 0;    // one past the last

    // The blocks that contain these bytes, at least partly.
    static BlockRange around(std::uint64_t offset, std::uint64_t bytes) {
        return {offset / block_bytes, (offset + bytes + block_bytes - 1) / block_bytes};
    }
    // The blocks that lie in these bytes completely.
    static BlockRange within(std::uint64_t offset, std::uint64_t bytes) {
        const BlockRange whole{(offset + block_bytes - 1) / block_bytes,
                               (offset + bytes) / block_bytes};
        return whole.first < whole.end ? whole : BlockRange{};
    }
    std::uint64_t count() const { return end - first; }
    bool overlaps(const BlockRange& other) const { return first < other.end && other.first < end; }
};

}  // namespace gpunbd::storage
