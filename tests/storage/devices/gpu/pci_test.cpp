// PCI facts from a fake sysfs.
#include "storage/devices/gpu/pci.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

namespace gpunbd::storage::test {
namespace {

class Sysfs {
 public:
    Sysfs() : folder_(std::filesystem::temp_directory_path() / "gpunbd-pci-XXXXXX") {
        REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    }
    ~Sysfs() { std::filesystem::remove_all(folder_); }
    Sysfs(const Sysfs&) = delete;
    Sysfs& operator=(const Sysfs&) = delete;

    const std::string& folder() const { return folder_; }
    using Attributes = std::vector<std::pair<const char*, const char*>>;
    void add(const std::string& address, const Attributes& attributes) const {
        std::filesystem::create_directory(folder_ + "/" + address);
        for (const auto& [name, value] : attributes) {
            std::ofstream(folder_ + "/" + address + "/" + name) << value << '\n';
        }
    }

 private:
    std::string folder_;
};

TEST_CASE("pci: reads the link and the NUMA node") {
    struct Row {
        const char* name;
        Sysfs::Attributes attributes;
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
    const Sysfs sysfs;
    int number = 0;
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const std::string address = "0000:0" + std::to_string(++number) + ":00.0";
        sysfs.add(address, row.attributes);
        const PciFacts facts = read_pci_facts(address, sysfs.folder());
        CHECK(facts.link == row.link);
        CHECK(facts.numa_node == row.numa_node);
    }
    // A device that does not exist.
    const PciFacts facts = read_pci_facts("0000:ff:00.0", sysfs.folder());
    CHECK(facts.link.empty());
    CHECK(facts.numa_node == -1);
}

}  // namespace
}  // namespace gpunbd::storage::test
