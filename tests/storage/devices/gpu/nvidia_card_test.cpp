// A fake sysfs with cards.
#include "storage/devices/gpu/nvidia_card.hpp"

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

struct CardBus : gpunbd::test::TemporaryFolder {
    void add(const std::string& address, const std::string& vendor, const std::string& kind) const {
        const std::string device = "bus/pci/devices/" + address;
        write(device + "/vendor", vendor + "\n");
        write(device + "/class", kind + "\n");
    }
};

TEST_CASE("nvidia card: cards are found among the devices of the bus") {
    const CardBus sysfs;
    CHECK(nvidia_cards(sysfs.path()).empty());
    sysfs.add("0000:00:02.0", "0x8086", "0x030000");  // another vendor
    sysfs.add("0000:04:00.1", "0x10de", "0x040300");  // the audio function of the card
    sysfs.add("0000:05:00.0", "0x10de", "0x068000");  // a bridge
    CHECK(nvidia_cards(sysfs.path()).empty());
    sysfs.add("0000:17:00.0", "0x10de", "0x030200");
    sysfs.add("0000:04:00.0", "0x10de", "0x030000");
    CHECK(nvidia_cards(sysfs.path()) == std::vector<std::string>{"0000:04:00.0", "0000:17:00.0"});
    CHECK(nvidia_cards(sysfs.path("no/such")).empty());
}

TEST_CASE("nvidia card: its file in /dev") {
    const gpunbd::test::TemporaryFolder procfs;
    const auto tell = [&](const std::string& address, const std::string& text) {
        procfs.write("driver/nvidia/gpus/" + address + "/information", text);
    };
    tell("0000:00:06.0", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 0\nDevice Minor: \t 3\n");
    tell("0000:00:07.0", "Model: \t\t NVIDIA H200\nDevice Minor: \t unknown\n");
    CHECK(nvidia_file("0000:00:06.0", procfs.path()) == "/dev/nvidia3");
    CHECK(nvidia_file("0000:00:07.0", procfs.path()).empty());
    CHECK(nvidia_file("0000:00:08.0", procfs.path()).empty());
}

TEST_CASE("nvidia card: the error names the software to install") {
    CHECK(gpu_remedy({}, false).empty());
    CHECK(gpu_remedy({}, true).empty());
    CHECK(gpu_remedy({"0000:04:00.0"}, false) ==
          "there is an NVIDIA card (0000:04:00.0): install the CUDA Toolkit, 12.4 or later (tested "
          "with 13.0), https://docs.nvidia.com/cuda/cuda-installation-guide-linux/, and build "
          "gpunbd again");
    CHECK(gpu_remedy({"a", "b"}, true)
              .starts_with("there are 2 NVIDIA cards: install NVIDIA's driver"));
}

}  // namespace
}  // namespace gpunbd::storage::test
