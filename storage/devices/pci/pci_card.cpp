#include "storage/devices/pci/pci_card.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view bar_scheme = "pci:";

// From <linux/ioport.h>.
constexpr std::uint64_t is_memory = 0x200;
constexpr std::uint64_t is_prefetchable = 0x2000;
constexpr std::uint64_t is_unset = 0x20000000;

std::string pci_attribute(const std::string& folder, const char* name) {
    std::ifstream file(folder + "/" + name);
    std::string word;
    file >> word;
    return word;
}

// For example, "1af4" for "0x1af4".
std::string digits_of(const std::string& folder, const char* name) {
    const std::string number = pci_attribute(folder, name);
    return number.starts_with("0x") ? number.substr(2) : number;
}

// The file has a line for each BAR: first address, last address, flags. Zeroes: no BAR.
std::array<Bar, 6> read_bars(const std::string& folder) {
    std::array<Bar, 6> bars;
    std::ifstream file(folder + "/resource");
    file >> std::hex;
    for (Bar& bar : bars) {
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        std::uint64_t flags = 0;
        // std::hex accepts the prefix "0x".
        if (!(file >> first >> last >> flags)) break;
        if (flags == 0 || last < first) continue;
        bar = {.bytes = last - first + 1,
               .memory = (flags & is_memory) != 0,
               .prefetchable = (flags & is_prefetchable) != 0,
               .has_address = first != 0 && (flags & is_unset) == 0};
    }
    return bars;
}

}  // namespace

BarId::BarId(std::string_view id) {
    id.remove_prefix(bar_scheme.size());
    const std::size_t slash = id.find('/');
    card = id.substr(0, slash);
    number = static_cast<std::uint32_t>(id.at(slash + 1) - '0');
}

std::string BarId::id() const { return fmt::format("{}{}/{}", bar_scheme, card, number); }

std::optional<PciCard> read_pci_card(const std::string& address, const std::string& sysfs) {
    PciCard card;
    card.address = address;
    card.folder = fmt::format("{}/bus/pci/devices/{}", sysfs, address);
    std::error_code error;
    if (!fs::is_directory(card.folder, error)) return std::nullopt;
    card.name =
        fmt::format("{}:{}", digits_of(card.folder, "vendor"), digits_of(card.folder, "device"));
    card.driver = fs::read_symlink(card.folder + "/driver", error).filename();
    // The boot display may have another class.
    card.display = pci_attribute(card.folder, "class").starts_with("0x03") ||
                   pci_attribute(card.folder, "boot_vga") == "1";
    card.enabled = pci_attribute(card.folder, "enable") != "0";
    card.bars = read_bars(card.folder);
    return card;
}

std::vector<PciCard> pci_cards(const std::string& sysfs) {
    std::vector<std::string> addresses;
    std::error_code error;
    fs::directory_iterator cards(sysfs + "/bus/pci/devices", error);
    for (; !error && cards != fs::directory_iterator(); cards.increment(error)) {
        addresses.push_back(cards->path().filename());
    }
    std::sort(addresses.begin(), addresses.end());
    std::vector<PciCard> all;
    for (const std::string& address : addresses) {
        if (auto card = read_pci_card(address, sysfs)) all.push_back(std::move(*card));
    }
    return all;
}

}  // namespace gpunbd::storage
