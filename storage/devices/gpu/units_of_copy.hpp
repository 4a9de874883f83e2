// Cuts a copy into units, for all kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/copy_unit.hpp"

namespace gpunbd::storage {

inline std::uint32_t units_of(const Copy& copy) {
    return (copy.length + copy_unit_bytes - 1) / copy_unit_bytes;
}

// Calls take(CopyUnit) for each unit, in the order of addresses.
template <typename Take>
void cut_into_units(const Copy& copy, Take&& take) {
    for (std::uint32_t at = 0; at < copy.length; at += copy_unit_bytes) {
        std::byte* const device = reinterpret_cast<std::byte*>(copy.address) + at;
        std::byte* const host = copy.staging == nullptr ? nullptr : copy.staging + at;
        const bool reads = copy.kind == Copy::Kind::read;
        take(CopyUnit{.from = reads ? device : host,
                      .to = reads ? host : device,
                      .length = std::min(copy.length - at, copy_unit_bytes)});
    }
}

}  // namespace gpunbd::storage
