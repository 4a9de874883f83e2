#include "storage/devices/pci/pci_driver.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "storage/devices/gpu/pci.hpp"
#include "storage/devices/pci/bar_device.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::string_view prefix = "pci:";

// Lower case, with the domain.
std::optional<std::string> parse(std::string_view text) {
    if (!text.starts_with(prefix)) return std::nullopt;
    text.remove_prefix(prefix.size());
    const std::size_t slash = std::min(text.find('/'), text.size());
    const std::string_view bar = text.substr(slash);
    const auto address = parse_pci_address(text.substr(0, slash));
    if (!address || bar.size() != 2 || bar[1] < '0' || bar[1] > '5') return std::nullopt;
    return fmt::format("{}{}{}", prefix, *address, bar);
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
