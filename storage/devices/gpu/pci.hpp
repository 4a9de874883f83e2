// What sysfs tells of a PCI device.
#pragma once

#include <string>

namespace gpunbd::storage {

struct PciFacts {
    std::string link;    // "PCIe gen 5 x16", or empty where it cannot be read
    int numa_node = -1;  // -1: unknown, or there is but one
};

// `address`: "0000:01:00.0", as the folder of a device is called in `devices`.
PciFacts read_pci_facts(const std::string& address,
                        const std::string& devices = "/sys/bus/pci/devices");

}  // namespace gpunbd::storage
