// What one block of GPU threads copies at a time. Also included by kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpunbd::storage {

// May have any alignment.
struct CopyUnit {
    const std::byte* from;  // null: zeroes
    std::byte* to;
    std::uint32_t length;  // bytes
};

constexpr std::uint32_t copy_unit_bytes = 8
                                          << 10;  // longer copies are split into units of this size

}  // namespace gpunbd::storage
