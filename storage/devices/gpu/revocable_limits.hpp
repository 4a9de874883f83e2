// How much memory may be revocable, and when the device counts as full.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace gpunbd::storage {

// All sizes are in bytes.

// What revocable memory leaves to other users of the host.
constexpr std::uint64_t host_reserve_beside_revocable(std::uint64_t host_total) {
    constexpr std::uint64_t least = 512 << 20;
    return std::max(least, host_total / 16);
}

// Own slabs never take the reserve of the device. So with less free memory than this, which is half
// of the reserve or less, another program has taken the rest.
constexpr std::uint64_t low_free_memory(std::uint64_t device_total, std::uint64_t reserve) {
    constexpr std::uint64_t least = 512 << 20;
    return std::min(std::max(least, device_total / 64), reserve / 2);
}

struct HostRoom {
    std::uint64_t available = 0;
    std::uint64_t reserve = 0;
    std::uint64_t promised = 0;  // to revocable memory of other devices
};

// Why `revocable` bytes are not possible on a device with this reserve, in one line; empty: they
// are.
std::string reason_not_revocable(std::uint64_t revocable, std::uint64_t device_reserve,
                                 const HostRoom& host);

}  // namespace gpunbd::storage
