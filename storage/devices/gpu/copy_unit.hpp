// What one block of a GPU's threads copies at a time. Kernels' compilers read this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpunbd::storage {

// Any alignment.
struct CopyUnit {
    const std::byte* from;  // null: zeroes
    std::byte* to;
    std::uint32_t length;  // bytes
};

constexpr std::uint32_t copy_unit_bytes = 8 << 10;  // copies are cut into units of at most this

}  // namespace gpunbd::storage
