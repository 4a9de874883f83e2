// Facts about a PCI device from sysfs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpunbd::storage {

// The address as sysfs spells it, "0000:01:00.0": lower case, with the domain. Also takes the
// spellings of lspci ("01:00.0") and nvidia-smi ("00000000:01:00.0"). Empty: not an address.
std::optional<std::string> parse_pci_address(std::string_view text);

struct PciFacts {
    std::string link;    // "PCIe gen 5 x16", or empty if it cannot be read
    int numa_node = -1;  // -1: unknown, or the machine has one node
};

// `address` is as in the folder `devices`: "0000:01:00.0".
PciFacts read_pci_facts(const std::string& address,
                        const std::string& devices = "/sys/bus/pci/devices");

}  // namespace gpunbd::storage
