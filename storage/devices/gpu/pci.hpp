// Facts about a PCI device from sysfs.
#pragma once

#include <string>

namespace gpunbd::storage {

struct PciFacts {
    std::string link;    // "PCIe gen 5 x16", or empty if it cannot be read
    int numa_node = -1;  // -1: unknown, or the machine has one node
};

// `address` is as in the folder `devices`: "0000:01:00.0".
PciFacts read_pci_facts(const std::string& address,
                        const std::string& devices = "/sys/bus/pci/devices");

}  // namespace gpunbd::storage
