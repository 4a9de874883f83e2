#include "storage/devices/pci/bar_rules.hpp"

#include <fmt/format.h>

namespace gpunbd::storage {

namespace {

std::string memory_of(const PciCard& card) {
    std::string list;
    for (std::uint32_t i = 0; i != card.bars.size(); ++i) {
        const Bar& bar = card.bars[i];
        if (!bar.memory || bar.bytes < smallest_bar) continue;
        list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", i, bar_size(bar.bytes));
    }
    return list.empty() ? "none of its BARs is memory of 64 KiB or more"
                        : fmt::format("its memory BARs: {}", list);
}

std::string remedy_for_use(const PciCard& card) {
    if (card.driver.empty()) return "choose another card, or force it (force: true, --force-pci)";
    return fmt::format(
        "unbind the driver (echo {} > {}/driver/unbind) or, if the driver does not use "
        "this BAR, force it (force: true, --force-pci)",
        card.address, card.folder);
}

}  // namespace

std::string bar_size(std::uint64_t bytes) {
    constexpr std::uint64_t unit = 1024;
    if (bytes < unit) return fmt::format("{} bytes", bytes);
    if (bytes < unit * unit) return fmt::format("{} KiB", bytes / unit);
    if (bytes < unit * unit * unit) return fmt::format("{} MiB", bytes / unit / unit);
    return fmt::format("{} GiB", bytes / unit / unit / unit);
}

std::string user_of(const PciCard& card) {
    if (!card.driver.empty()) {
        return fmt::format("the driver {} uses the {}", card.driver,
                           card.display ? "card, a display" : "card");
    }
    return card.display ? "the card is a display, whose screen contents may be in this memory" : "";
}

std::string reason_not_served(const PciCard& card, std::uint32_t number, bool force) {
    const Bar& bar = card.bars.at(number);
    if (bar.bytes == 0) {
        return fmt::format("the card {} has no BAR {}; {}", card.name, number, memory_of(card));
    }
    if (!bar.memory) {
        return fmt::format("BAR {} is I/O ports, not memory; {}", number, memory_of(card));
    }
    if (!bar.has_address) {
        return fmt::format(
            "the firmware has assigned no addresses to its {}; enable addresses above 4 GiB in the "
            "firmware",
            bar_size(bar.bytes));
    }
    if (bar.bytes < smallest_bar) {
        return fmt::format("{} are too small; {}", bar_size(bar.bytes), memory_of(card));
    }
    const std::string user = user_of(card);
    if (user.empty() || force) return {};
    return fmt::format("{}; {}", user, remedy_for_use(card));
}

}  // namespace gpunbd::storage
