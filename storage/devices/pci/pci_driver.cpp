#include "storage/devices/pci/pci_driver.hpp"

#include <algorithm>

#include "storage/devices/pci/bar_device.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::string_view prefix = "pci:";

// "0000:01:00.0", as sysfs names a card.
bool is_pci_address(std::string_view text) {
    const auto take = [&text](std::size_t least, std::size_t most, char separator) {
        const std::size_t digits =
            std::min(text.find_first_not_of("0123456789abcdef"), text.size());
        if (digits < least || digits > most || digits == text.size()) return false;
        if (text[digits] != separator) return false;
        text.remove_prefix(digits + 1);
        return true;
    };
    return take(4, 8, ':') && take(2, 2, ':') && take(2, 2, '.') && text.size() == 1 &&
           text[0] >= '0' && text[0] <= '7';
}

// Lower case, with the domain.
std::optional<std::string> parse(std::string_view text) {
    if (!text.starts_with(prefix)) return std::nullopt;
    std::string bar(text.substr(prefix.size()));
    for (char& c : bar) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    if (std::count(bar.begin(), bar.end(), ':') == 1) bar.insert(0, "0000:");
    const std::size_t slash = bar.find('/');
    const bool has_number = slash != std::string::npos && slash + 2 == bar.size() &&
                            bar[slash + 1] >= '0' && bar[slash + 1] <= '5';
    if (!has_number || !is_pci_address(std::string_view(bar).substr(0, slash))) return std::nullopt;
    return std::string(prefix) + bar;
}

std::string guess(std::string_view) { return {}; }

class PciDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "pci"; }
    bool drives_gpus() const override { return false; }
    config::DriverInfo info() const override {
        return {.form = "pci:ADDRESS/BAR",
                .description = "pci:ADDRESS/BAR",
                .example = "pci:0000:01:00.0/2",
                .correction =
                    "pci:, the card's address, and the number of its BAR, 0 to 5, for "
                    "example pci:0000:01:00.0/2",
                .parse = parse,
                .guess = guess,
                .settings = {{.key = "force",
                              .purpose = "memory of PCI cards (pci:), which others may use",
                              .flag = "--force-pci",
                              .summary = "Allow memory of a PCI card that has a driver, or that "
                                         "is a display",
                              .called = "--force"}},
                .completed = false,
                .called = "--pci --bar"};
    }
    std::vector<std::string> enumerate(std::string&) const override { return {}; }
    std::vector<DeviceInfo> only_by_name() const override { return list_bars(); }
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        return open_bar_device(
            number, BarId(id),
            {.reserve = options.reserve, .capacity = options.capacity, .force = options.force});
    }
};

}  // namespace

const DeviceDriver& pci_driver() {
    static const PciDriver driver;
    return driver;
}

}  // namespace gpunbd::storage
