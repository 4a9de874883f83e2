// A PCI card as described by sysfs: its BARs, which are windows to its memory and registers, and
// its users.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::storage {

struct Bar {
    std::uint64_t bytes = 0;  // 0: no such BAR
    bool memory = false;      // otherwise I/O ports
    bool prefetchable = false;
    bool has_address = false;
};

struct PciCard {
    std::string address;  // "0000:01:00.0"
    std::string folder;   // of the card's files in sysfs
    std::string name;     // "1af4:1110", as lspci -n has it
    std::string driver;   // the driver that is bound to it; empty: none
    bool display = false;
    bool enabled = false;
    std::array<Bar, 6> bars;
};

// One BAR of a card. `id` is "pci:0000:01:00.0/2", as validated by the configuration.
struct BarId {
    std::string card;
    std::uint32_t number = 0;

    explicit BarId(std::string_view id);
    BarId(std::string address, std::uint32_t bar) : card(std::move(address)), number(bar) {}
    std::string id() const;
};

// `sysfs` is /sys except in tests. Empty: there is no such card.
std::optional<PciCard> read_pci_card(const std::string& address, const std::string& sysfs);
// Sorted by address.
std::vector<PciCard> pci_cards(const std::string& sysfs);

}  // namespace gpunbd::storage
