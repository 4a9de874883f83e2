#include "server/tools/devices/subcommand.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("devices: a card that two drivers know is recognized by its UUID") {
    ListedCards cards;
    const auto add = [&](const char* id, const char* hardware) {
        storage::DeviceInfo info;
        info.id = id;
        info.hardware = hardware;
        return cards.add(info);
    };
    CHECK(add("host", "").empty());
    CHECK(add("cuda:0", "GPU-1").empty());
    CHECK(add("cuda:1", "GPU-2").empty());
    CHECK(add("vulkan:0", "GPU-2") == "cuda:1");
    CHECK(add("vulkan:1", "GPU-3").empty());
    CHECK(add("pci:1", "").empty());
}

}  // namespace
}  // namespace gpunbd::server::test
