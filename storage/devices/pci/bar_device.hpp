// The `pci:ADDRESS/BAR` devices: memory of any PCI card, mapped from user space through sysfs,
// without a driver of its vendor.
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
    std::optional<std::uint64_t> reserve;   // bytes left alone at its end
    std::optional<std::uint64_t> capacity;  // bytes taken at most
    bool force = false;                     // whoever uses the card
    std::string sysfs = "/sys";
};

// Writes over all that it will use of the BAR to see whether that is memory. Throws DeviceTaken
// where another process has it, std::runtime_error with one line where it cannot be served.
std::unique_ptr<Device> open_bar_device(std::uint32_t number, const BarPlace& place,
                                        const BarDeviceOptions& options);
// Those of all cards that are large enough to be worth it, by what sysfs tells: none is touched.
std::vector<DeviceInfo> list_bars(const std::string& sysfs = "/sys");

}  // namespace gpunbd::storage
