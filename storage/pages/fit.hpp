// Does a volume fit on its devices, and which pages go where? Asked before any memory is taken, by
// those who make a volume and by those who only want to know.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "storage/pages/layout.hpp"

namespace gpunbd::storage {

struct VolumeOptions;

// What a volume needs and its devices do not have; all in bytes.
struct Misfit {
    std::optional<std::uint32_t> device =
        {};                       // the index of the one that lacks it; none: all together
    std::uint64_t asked = 0;      // of that device, or of all
    std::uint64_t available = 0;  // there, in whole pages
    std::uint64_t largest = 0;    // a size of the volume that would fit
    bool ran_out = false;         // it seemed to fit, and then somebody else was faster

    bool operator==(const Misfit&) const = default;
};

// `available`: bytes that each device can give.
std::variant<Layout, Misfit> lay_out(const VolumeOptions& options,
                                     const std::vector<std::uint64_t>& available);

}  // namespace gpunbd::storage
