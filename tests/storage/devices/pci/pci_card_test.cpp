// PCI cards in a fake sysfs, and the BARs that may be served.
#include "storage/devices/pci/pci_card.hpp"

#include "storage/devices/pci/bar_device.hpp"
#include "storage/devices/pci/bar_rules.hpp"
#include "tests/storage/devices/pci/fake_card.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

TEST_CASE("pci card: reads its BARs, name, driver and class") {
    FakeCard made;
    made.describe(0, 0xfebf1000, 256, FakeCard::memory);
    made.describe(1, 0xc000, 32, FakeCard::ports);
    made.describe(2, 0x380000000000, 16 * gib, FakeCard::memory | FakeCard::prefetchable);
    made.describe(4, 0, 64 * mib, FakeCard::memory | 0x20000000);
    auto card = read_pci_card(FakeCard::address, made.sysfs());
    REQUIRE(card);
    CHECK(card->name == "1af4:1110");
    CHECK(card->driver.empty());
    CHECK_FALSE(card->display);
    CHECK(card->enabled);
    CHECK(card->bars[0].bytes == 256);
    CHECK(card->bars[0].memory);
    CHECK_FALSE(card->bars[0].prefetchable);
    CHECK(card->bars[1].bytes == 32);
    CHECK_FALSE(card->bars[1].memory);
    CHECK(card->bars[2].bytes == 16 * gib);
    CHECK(card->bars[2].memory);
    CHECK(card->bars[2].prefetchable);
    CHECK(card->bars[2].has_address);
    CHECK(card->bars[3].bytes == 0);
    CHECK(card->bars[4].bytes == 64 * mib);
    CHECK_FALSE(card->bars[4].has_address);

    made.bind("nouveau");
    made.set("class", "0x030000");
    made.set("enable", "0");
    card = read_pci_card(FakeCard::address, made.sysfs());
    REQUIRE(card);
    CHECK(card->driver == "nouveau");
    CHECK(card->display);
    CHECK_FALSE(card->enabled);
    // The boot display may have another class.
    made.set("class", "0x040000");
    made.set("boot_vga", "1");
    CHECK(read_pci_card(FakeCard::address, made.sysfs())->display);
    made.set("boot_vga", "0");
    CHECK_FALSE(read_pci_card(FakeCard::address, made.sysfs())->display);
    CHECK_FALSE(read_pci_card("0000:02:00.0", made.sysfs()));
}

std::string why_not(const FakeCard& made, std::uint32_t bar, bool force = false) {
    return reason_not_served(*read_pci_card(FakeCard::address, made.sysfs()), bar, force);
}

TEST_CASE("bar rules: a BAR that is not memory is refused, forced or not") {
    FakeCard made;
    made.describe(0, 0xfebf1000, 4096, FakeCard::memory);
    made.describe(1, 0xc000, 32, FakeCard::ports);
    made.describe(4, 0, 64 * mib, FakeCard::memory | 0x20000000);
    const std::string none = "none of its BARs is memory of 64 KiB or more";
    for (const bool force : {false, true}) {
        CHECK(why_not(made, 0, force).starts_with("4 KiB are too small; "));
        CHECK(why_not(made, 1, force).starts_with("BAR 1 is I/O ports, not memory; "));
        CHECK(why_not(made, 3, force).starts_with("the card 1af4:1110 has no BAR 3; "));
        CHECK(why_not(made, 4, force) ==
              "the firmware has assigned no addresses to its 64 MiB; enable addresses above 4 GiB "
              "in the firmware");
    }
    CHECK(why_not(made, 3) == "the card 1af4:1110 has no BAR 3; its memory BARs: 4 (64 MiB)");
    made.describe(4, 0, 0, 0);
    CHECK(why_not(made, 1) == "BAR 1 is I/O ports, not memory; " + none);
    made.describe(2, 0xf0000000, gib, FakeCard::memory);
    made.describe(4, 0xe0000000, 64 * kib, FakeCard::memory);
    CHECK(why_not(made, 1) ==
          "BAR 1 is I/O ports, not memory; its memory BARs: 2 (1 GiB), 4 (64 KiB)");
    CHECK(why_not(made, 2).empty());
    CHECK(why_not(made, 4).empty());
}

TEST_CASE("bar rules: a BAR in use is refused unless it is forced") {
    FakeCard made;
    made.describe(2, 0xf0000000, gib, FakeCard::memory);
    CHECK(why_not(made, 2).empty());
    made.set("class", "0x030000");
    CHECK(why_not(made, 2) ==
          "the card is a display, whose screen contents may be in this memory; choose another "
          "card, or force it "
          "(force: true, --force-pci)");
    CHECK(why_not(made, 2, true).empty());
    made.bind("nouveau");
    CHECK(why_not(made, 2) ==
          "the driver nouveau uses the card, a display; unbind the driver (echo 0000:01:00.0 "
          "> " +
              made.folder() +
              "/driver/unbind) or, if the driver does not use this BAR, force it (force: true, "
              "--force-pci)");
    made.set("class", "0x050000");
    CHECK(why_not(made, 2).starts_with("the driver nouveau uses the card; "));
    CHECK(why_not(made, 2, true).empty());
}

TEST_CASE("bar rules: lists large BARs and the user of each card") {
    FakeCard made;
    made.describe(0, 0xfebf1000, 16 * mib, FakeCard::memory);  // registers
    made.describe(2, 0xf0000000, 16 * mib, FakeCard::memory | FakeCard::prefetchable);
    made.describe(4, 0xe0000000, 8 * mib, FakeCard::memory | FakeCard::prefetchable);
    auto listed = list_bars(made.sysfs());
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].id == made.id(2));
    CHECK(listed[0].total == 16 * mib);
    CHECK(listed[0].address == FakeCard::address);
    CHECK(listed[0].name == "BAR 2 of the PCI card 1af4:1110");
    CHECK(listed[0].access == "not in use");
    made.bind("nouveau");
    listed = list_bars(made.sysfs());
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].access == "refused unless forced: the driver nouveau uses the card");
    made.describe(2, 0, 16 * mib, FakeCard::memory | FakeCard::prefetchable);
    listed = list_bars(made.sysfs());
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].access.starts_with("refused: the firmware has assigned no addresses"));
    CHECK(list_bars(made.sysfs() + "/none").empty());
}

}  // namespace
}  // namespace gpunbd::storage::test
