// Finds the swap that is on NBD devices, in copies of /proc and /sys.
#include "server/protection/swap_devices.hpp"

#include "tests/server/protection/fake_swaps.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

// "path size backend" of each device.
std::string found(const FakeSwaps& system) {
    std::string text;
    for (const SwapDevice& each : served_swap_devices(system.path())) {
        text += each.path + " " + std::to_string(each.bytes) + " " + each.backend + "\n";
    }
    return text;
}

TEST_CASE("swap devices: no swap, or no information") {
    const FakeSwaps system;
    CHECK(found(system).empty());
    CHECK(served_swap_devices("/nowhere").empty());
}

TEST_CASE("swap devices: only those of the NBD client") {
    FakeSwaps system;
    system.swaps_to("/dev/sda2");
    system.swaps_to("/swapfile");
    system.swaps_to("/dev/nbd12");
    system.has("nbd12", 2048, "b81f2ad904c35e67a0d14f9be28c7365");
    CHECK(found(system) == "/dev/nbd12 1048576 b81f2ad904c35e67a0d14f9be28c7365\n");
}

TEST_CASE("swap devices: partitions give their device, once") {
    FakeSwaps system;
    system.swaps_to("/dev/nbd0p1");
    system.swaps_to("/dev/nbd0p2");
    system.has("nbd0", 8);
    CHECK(found(system) == "/dev/nbd0 4096 \n");
}

TEST_CASE("swap devices: NBD devices below stacked devices") {
    FakeSwaps system;
    system.swaps_to("/dev/dm-1");
    system.lies_on("dm-1", "dm-0");
    system.lies_on("dm-0", "sdb1");
    system.lies_on("dm-0", "nbd3p1");
    system.has("nbd3", 16);
    CHECK(found(system) == "/dev/nbd3 8192 \n");
}

}  // namespace
}  // namespace gpunbd::server::test
