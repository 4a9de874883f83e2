// PCI facts from a fake sysfs.
#include "storage/devices/gpu/pci.hpp"

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

TEST_CASE("pci: reads the link and the NUMA node") {
    static constexpr const char* files[] = {"current_link_speed", "current_link_width",
                                            "max_link_speed", "max_link_width", "numa_node"};
    struct Row {
        const char* name;
        const char* texts[std::size(files)];  // null: there is no such file
        const char* link;
        int numa_node;
    };
    const Row rows[] = {
        {"at full speed",
         {"32.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16", "1"},
         "PCIe gen 5 x16",
         1},
        {"idle, or in a slower slot",
         {"2.5 GT/s PCIe", "8", "64.0 GT/s PCIe", "16", "0"},
         "PCIe gen 1 x8, up to PCIe gen 6 x16",
         0},
        {"old kernels write no PCIe", {"8 GT/s", "4"}, "PCIe gen 3 x4", -1},
        {"unknown to the kernel", {"Unknown", "255", "Unknown", "255", "-1"}, "", -1},
        {"a rate that no generation has", {"7.0 GT/s PCIe", "16"}, "", -1},
        {"no link at all", {"16.0 GT/s PCIe", "0"}, "", -1},
        {"nothing is told", {}, "", -1},
    };
    const gpunbd::test::TemporaryFolder sysfs;
    int number = 0;
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const std::string address = "0000:0" + std::to_string(++number) + ":00.0";
        for (std::size_t i = 0; i != std::size(files); ++i) {
            if (row.texts[i] == nullptr) continue;
            sysfs.write(address + "/" + files[i], std::string(row.texts[i]) + "\n");
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
