// Decides which BARs can be served: only memory, not of a card with a driver, and of a display only
// if forced.
#pragma once

#include <cstdint>
#include <string>

#include "storage/devices/pci/pci_card.hpp"

namespace gpunbd::storage {

// Smaller BARs often have registers in the same mapping, and no page of an export fits.
inline constexpr std::uint64_t smallest_bar = 64 << 10;  // bytes
// Smaller BARs are usually registers, so they are not listed.
inline constexpr std::uint64_t smallest_listed_bar = 16 << 20;  // bytes

// What uses the card, in a few words; empty: nothing.
std::string user_of(const PciCard& card);
// Why the BAR is not served and what to do, in one line; empty: it may be served. `force` ignores
// other users.
std::string reason_not_served(const PciCard& card, std::uint32_t number, bool force);

// "256 MiB"
std::string bar_size(std::uint64_t bytes);

}  // namespace gpunbd::storage
