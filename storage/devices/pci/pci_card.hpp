// What sysfs tells of a PCI card: its BARs, the windows through which the CPU reaches its memory
// and its registers, and who uses them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::storage {

struct Bar {
    std::uint64_t bytes = 0;  // 0: there is none
    bool memory = false;      // else I/O ports
    bool prefetchable = false;
    bool has_address = false;
};

struct PciCard {
    std::string address;  // "0000:01:00.0"
    std::string folder;   // of its files
    std::string name;     // "1af4:1110", as lspci -n has it
    std::string driver;   // which has it; empty: none
    bool display = false;
    bool enabled = false;
    std::array<Bar, 6> bars;
};

// One BAR of a card: "pci:0000:01:00.0/2". The id is one that the configuration has let through.
struct BarPlace {
    std::string card;
    std::uint32_t number = 0;

    explicit BarPlace(std::string_view id);
    BarPlace(std::string address, std::uint32_t bar) : card(std::move(address)), number(bar) {}
    std::string id() const;
};

// `sysfs` is /sys but in tests. Nothing: there is no such card.
std::optional<PciCard> read_pci_card(const std::string& address, const std::string& sysfs);
// In the order of their addresses.
std::vector<PciCard> pci_cards(const std::string& sysfs);

}  // namespace gpunbd::storage
