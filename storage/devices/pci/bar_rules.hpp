// Which BARs are served: not a driver's, not a display's unless that is forced, and nothing that is
// no memory.
#pragma once

#include <cstdint>
#include <string>

#include "storage/devices/pci/pci_card.hpp"

namespace gpunbd::storage {

// Below, what is mapped has other registers beside it, and no page of an export fits.
inline constexpr std::uint64_t smallest_bar = 64 << 10;  // bytes
// What is told to people unasked: below, most are registers.
inline constexpr std::uint64_t smallest_listed_bar = 16 << 20;  // bytes

// Who uses the card, in a few words; empty: nobody does.
std::string user_of(const PciCard& card);
// Why it is not served, and what to do about it, in one line; empty: it may be. `force`: whoever
// uses it.
std::string why_not_served(const PciCard& card, std::uint32_t number, bool force);

// "256 MiB"
std::string bar_size(std::uint64_t bytes);

}  // namespace gpunbd::storage
