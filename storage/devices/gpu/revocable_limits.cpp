#include "storage/devices/gpu/revocable_limits.hpp"

#include <fmt/format.h>

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t least_reserve = 128 << 20;  // bytes

}  // namespace

std::string reason_not_revocable(std::uint64_t revocable, std::uint64_t device_reserve,
                                 const HostRoom& host) {
    if (device_reserve < least_reserve) {
        return fmt::format(
            "revocable memory needs a reserve of {} MiB or more, not {} MiB: the server detects by "
            "the free memory that another program takes memory; set reserve: {}M",
            least_reserve >> 20, device_reserve >> 20, least_reserve >> 20);
    }
    const std::uint64_t kept = host.reserve + host.promised;
    const std::uint64_t room = host.available - std::min(host.available, kept);
    if (revocable <= room) return {};
    const std::uint64_t room_mib = room >> 20;
    return fmt::format(
        "revocable is {} MiB, but the host can take only {} MiB: {} MiB are available, {} MiB stay "
        "free, and {} MiB are for other devices; set revocable: {}{}",
        (revocable + (1 << 20) - 1) >> 20, room_mib, host.available >> 20, host.reserve >> 20,
        host.promised >> 20, room_mib, room_mib == 0 ? "" : "M");
}

}  // namespace gpunbd::storage
