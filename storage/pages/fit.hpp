// Checks whether a volume fits on its devices, and lays out its pages. No memory is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "storage/pages/layout.hpp"

namespace gpunbd::storage {

struct VolumeOptions;

// The memory that a volume needs and its devices lack. All sizes are in bytes.
struct CapacityError {
    std::optional<std::uint32_t> device =
        {};                   // the index of the device that lacks it; none: all devices together
    std::uint64_t asked = 0;  // needed from that device, or from all
    std::uint64_t available = 0;  // of that, in whole pages
    std::uint64_t largest = 0;    // the largest size of the volume that would fit
    bool ran_out = false;  // memory ran out during allocation, although enough was available before

    bool operator==(const CapacityError&) const = default;
};

// `available`: the bytes that each device can allocate.
std::variant<Layout, CapacityError> lay_out(const VolumeOptions& options,
                                            const std::vector<std::uint64_t>& available);

}  // namespace gpunbd::storage
