// PCI facts from a fake sysfs.
#include "storage/devices/gpu/pci.hpp"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "tests/temporary_folder.hpp"

namespace gpunbd::storage::test {
namespace {

using Attributes = std::vector<std::pair<const char*, const char*>>;

TEST_CASE("pci: reads the link and the NUMA node") {
    struct Row {
        const char* name;
        Attributes attributes;
        const char* link;
        int numa_node;
    };
    const Row rows[] = {
        {"at full speed",
         {{"current_link_speed", "32.0 GT/s PCIe"},
          {"current_link_width", "16"},
          {"max_link_speed", "32.0 GT/s PCIe"},
          {"max_link_width", "16"},
          {"numa_node", "1"}},
         "PCIe gen 5 x16",
         1},
        {"idle, or in a slower slot",
         {{"current_link_speed", "2.5 GT/s PCIe"},
          {"current_link_width", "8"},
          {"max_link_speed", "64.0 GT/s PCIe"},
          {"max_link_width", "16"},
          {"numa_node", "0"}},
         "PCIe gen 1 x8, up to PCIe gen 6 x16",
         0},
        {"old kernels write no PCIe",
         {{"current_link_speed", "8 GT/s"}, {"current_link_width", "4"}},
         "PCIe gen 3 x4",
         -1},
        {"unknown to the kernel",
         {{"current_link_speed", "Unknown"},
          {"current_link_width", "255"},
          {"max_link_speed", "Unknown"},
          {"max_link_width", "255"},
          {"numa_node", "-1"}},
         "",
         -1},
        {"a rate that no generation has",
         {{"current_link_speed", "7.0 GT/s PCIe"}, {"current_link_width", "16"}},
         "",
         -1},
        {"no link at all",
         {{"current_link_speed", "16.0 GT/s PCIe"}, {"current_link_width", "0"}},
         "",
         -1},
        {"nothing is told", {}, "", -1},
    };
    const gpunbd::test::TemporaryFolder sysfs;
    int number = 0;
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const std::string address = "0000:0" + std::to_string(++number) + ":00.0";
        for (const auto& [name, value] : row.attributes) {
            sysfs.write(address + "/" + name, std::string(value) + "\n");
        }
        const PciFacts facts = read_pci_facts(address, sysfs.path());
        CHECK(facts.link == row.link);
        CHECK(facts.numa_node == row.numa_node);
    }
    // A device that does not exist.
    const PciFacts facts = read_pci_facts("0000:ff:00.0", sysfs.path());
    CHECK(facts.link.empty());
    CHECK(facts.numa_node == -1);
}

}  // namespace
}  // namespace gpunbd::storage::test
