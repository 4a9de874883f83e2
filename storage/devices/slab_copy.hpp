// Copies between slabs through staging memory, with channels that are opened for one copy: slow,
// but it works between any two devices.
#pragma once

#include <cstdint>

#include "storage/base/status.hpp"

namespace gpunbd::storage {

class Device;
struct Slab;

// Bytes of a slab from `offset` on.
struct SlabPosition {
    Device& device;
    const Slab& slab;
    std::uint64_t offset = 0;
};

// Blocks. Throws what Device::open_channel() throws.
Status copy_through_channels(SlabPosition from, SlabPosition to, std::uint64_t bytes);

}  // namespace gpunbd::storage
