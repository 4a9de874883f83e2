// The `pci:ADDRESS/BAR` devices: memory of any PCI card, mapped from user space through sysfs,
// without a vendor driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/devices/device.hpp"
#include "storage/devices/pci/pci_card.hpp"

namespace gpunbd::storage {

struct BarDeviceOptions {
    std::optional<std::uint64_t> reserve;   // bytes left unused at the end
    std::optional<std::uint64_t> capacity;  // the most bytes to use
    bool force = false;                     // even if the card is in use
    std::string sysfs = "/sys";
};

// Checks that the BAR is memory by overwriting everything that will be used. Throws DeviceInUse if
// another process has it, and std::runtime_error with one line if it cannot be served.
std::unique_ptr<Device> open_bar_device(std::uint32_t number, const BarId& place,
                                        const BarDeviceOptions& options);
// The BARs of all cards that are large enough, as listed in sysfs. Touches no card.
std::vector<DeviceInfo> list_bars(const std::string& sysfs = "/sys");

}  // namespace gpunbd::storage
