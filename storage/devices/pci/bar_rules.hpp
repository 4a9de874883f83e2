#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "storage/devices/pci/pci_card.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage {

// Checks that a BAR is backed by memory, with different memory for each byte. A window may be
// larger than its memory, which then appears at several addresses, or only at the start.

// Writes each location's number, and then its complement, at the start of each step, at all smaller
// power-of-two distances, and at the end, and reads them back. Destroys the contents. `settle`
// makes stores reach the memory. `bytes` is a multiple of 4096. Returns the reason why it is not
// memory, in one line; empty: it is memory.
std::string reason_not_memory(std::byte* at, std::uint64_t bytes,
                              const std::function<void()>& settle = store_fence);

// Decides which BARs can be served: only memory, not of a card with a driver, and of a display only
// if forced.

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
