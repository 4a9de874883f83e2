// A device on a BAR that is a regular file: all reasons for refusing it, and its operations.
#include "storage/devices/pci/bar_device.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>

#include "storage/devices/channel.hpp"
#include "storage/devices/device_driver.hpp"
#include "tests/storage/devices/pci/fake_card.hpp"
#include "tests/storage/owned_slab.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

std::unique_ptr<Device> open_bar_of(const FakeCard& made, std::uint32_t bar,
                                    BarDeviceOptions options = {}) {
    options.sysfs = made.sysfs();
    return open_bar_device(5, BarId(made.id(bar)), options);
}

std::string refusal_of(const FakeCard& made, std::uint32_t bar,
                       const BarDeviceOptions& options = {}) {
    return error_of([&] { return open_bar_of(made, bar, options); });
}

bool all_are(const std::byte* at, std::uint64_t bytes, std::byte value) {
    return std::all_of(at, at + bytes, [=](std::byte each) { return each == value; });
}

TEST_CASE("bar device: reports its properties") {
    FakeCard made;
    made.add(2, 4 * mib);
    made.set("numa_node", "1");
    const auto device = open_bar_of(made, 2);
    CHECK(device->number() == 5);
    CHECK(device->info().id == "pci:0000:01:00.0/2");
    CHECK(device->info().identity == "pci:0000:01:00.0/2");
    CHECK(device->info().name == "BAR 2 of the PCI card 1af4:1110");
    CHECK(device->info().access == "write-combined: written in place, read by streaming loads");
    CHECK(device->info().address == FakeCard::address);
    CHECK(device->info().total == 4 * mib);
    CHECK(device->info().reserve == 0);
    CHECK(device->info().numa_node == 1);
    CHECK(device->available() == 4 * mib);
    CHECK(device->slow_to_allocate());
    CHECK(device->exclusive());
    CHECK_FALSE(device->failed());
}

TEST_CASE("bar device: an absent or unsuitable card is refused with its id, and is not enabled") {
    FakeCard made;
    made.add(2, mib);
    made.set("enable", "0");
    CHECK(refusal_of(made, 3).starts_with("pci:0000:01:00.0/3: the card 1af4:1110 has no BAR 3; "));
    made.bind("nouveau");
    CHECK(
        refusal_of(made, 2).starts_with("pci:0000:01:00.0/2: the driver nouveau uses the card; "));
    CHECK(made.get("enable") == "0");
    CHECK(refusal_of(made, 2, {.reserve = {}, .capacity = {}, .force = true}) == "");
    CHECK(made.get("enable") == "1");
    std::filesystem::remove_all(made.folder());
    CHECK(refusal_of(made, 2) == "pci:0000:01:00.0/2: unknown card; lspci -D lists the cards");
}

TEST_CASE("bar device: a file that cannot be opened, mapped or locked is refused without a leak") {
    FakeCard made;
    made.describe(2, 0xf0000000, mib, FakeCard::memory | FakeCard::prefetchable);
    const std::string file = "pci:0000:01:00.0/2: " + made.file("resource2");
    CHECK(refusal_of(made, 2) == file + " cannot be opened: No such file or directory");
    // The file is shorter than the BAR; accessing the missing part would crash.
    made.make("resource2", mib - 4096);
    CHECK(refusal_of(made, 2) == file + " has 1044480 bytes, not 1048576");
    made.make("resource2", mib);
    made.make("resource2_wc", 0);
    CHECK(refusal_of(made, 2) == file + "_wc has 0 bytes, not 1048576");
    std::filesystem::remove(made.file("resource2_wc"));
    std::filesystem::create_directory(made.file("resource2_wc"));
    CHECK(refusal_of(made, 2) == file + "_wc cannot be opened: Is a directory");
    std::filesystem::remove(made.file("resource2_wc"));
    CHECK(refusal_of(made, 2) == "");
}

TEST_CASE("bar device: a card that cannot be enabled is refused, and unlocked") {
    FakeCard made;
    made.add(2, mib);
    made.set("enable", "0");
    std::filesystem::rename(made.file("enable"), made.file("was"));
    std::filesystem::create_symlink("was", made.file("enable"));
    CHECK(refusal_of(made, 2) == "pci:0000:01:00.0/2: " + made.file("enable") +
                                     " cannot be opened: Too many levels of symbolic links");
    std::filesystem::remove(made.file("enable"));
    CHECK(refusal_of(made, 2) == "");
}

TEST_CASE("bar device: only one server can open it") {
    FakeCard made;
    made.add(2, mib);
    made.add(4, mib);
    auto first = open_bar_of(made, 2);
    CHECK_THROWS_AS(open_bar_of(made, 2), DeviceInUse);
    CHECK(refusal_of(made, 2) == "pci:0000:01:00.0/2: another gpunbd serves it");
    CHECK(refusal_of(made, 4) == "");
    first.reset();
    CHECK(refusal_of(made, 2) == "");
    // Both must lock the same one of the two files.
    const int other = ::open(made.file("resource2").c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(other >= 0);
    REQUIRE(::flock(other, LOCK_EX) == 0);
    CHECK(refusal_of(made, 2) == "pci:0000:01:00.0/2: another gpunbd serves it");
    ::close(other);
}

TEST_CASE("bar device: reserve and capacity leave the end of the BAR unused") {
    FakeCard made;
    made.add(2, 4 * mib);
    const auto bytes_touched = [&] {
        std::ifstream file(made.file("resource2_wc"), std::ios::binary);
        const std::string all{std::istreambuf_iterator<char>(file), {}};
        return all.find_last_not_of('\0') + 1;
    };
    {
        const auto device = open_bar_of(made, 2, {.reserve = {}, .capacity = mib});
        CHECK(device->available() == mib);
        CHECK(device->info().total == 4 * mib);
    }
    CHECK(bytes_touched() == mib);
    CHECK(open_bar_of(made, 2, {.reserve = mib, .capacity = {}})->available() == 3 * mib);
    CHECK(bytes_touched() == 3 * mib);
    CHECK(open_bar_of(made, 2, {.reserve = 3 * mib, .capacity = 2 * mib})->available() == mib);
    CHECK(open_bar_of(made, 2, {.reserve = 1, .capacity = {}})->available() == 4 * mib - 4096);
    for (const std::uint64_t reserve : {4 * mib, 4 * mib - 4095, gib}) {
        CHECK(refusal_of(made, 2, {.reserve = reserve, .capacity = {}}) ==
              "pci:0000:01:00.0/2: its 4 MiB are less than the reserve; set a smaller reserve");
    }
}

TEST_CASE("bar device: slabs are ranges of the BAR, zeroed, and reusable after release") {
    FakeCard made;
    made.add(2, 4 * mib);
    const auto device = open_bar_of(made, 2);
    Slab first;
    Slab second;
    Slab refused;
    REQUIRE(device->allocate({.bytes = mib}, first) == Status::ok);
    REQUIRE(device->allocate({.bytes = 3 * mib, .provision = Provision::full}, second) ==
            Status::ok);
    CHECK_FALSE(first.resident);
    CHECK(second.resident);
    CHECK(device->available() == 0);
    CHECK(device->allocate({.bytes = 64 * kib}, refused) == Status::no_space);
    CHECK(refused.bytes == 0);
    CHECK(all_are(first.cpu, mib, std::byte{0}));
    CHECK(all_are(second.cpu, 3 * mib, std::byte{0}));
    CHECK(second.address - first.address == static_cast<std::uint64_t>(second.cpu - first.cpu));

    std::memset(first.cpu, 1, mib);
    CHECK(all_are(second.cpu, 3 * mib, std::byte{0}));
    REQUIRE(device->clear(first, 4096, 8192) == Status::ok);
    CHECK(all_are(first.cpu, 4096, std::byte{1}));
    CHECK(all_are(first.cpu + 4096, 8192, std::byte{0}));
    CHECK(all_are(first.cpu + 12288, mib - 12288, std::byte{1}));
    CHECK_FALSE(device->discard(first, 0, mib));

    device->release(first);
    CHECK(first.bytes == 0);
    CHECK(device->available() == mib);
    REQUIRE(device->allocate({.bytes = mib}, first) == Status::ok);
    CHECK(all_are(first.cpu, mib, std::byte{0}));  // also after it had other contents
    device->release(first);
    device->release(second);
    CHECK(device->available() == 4 * mib);
}

TEST_CASE("bar device: slabs do not outlive the server") {
    FakeCard made;
    made.add(2, mib);
    const auto device = open_bar_of(made, 2);
    CHECK(device->reason_not_kept() == "a server overwrites a BAR to check it before it serves");
    Slab slab;
    CHECK(device->allocate({.bytes = 64 * kib, .kept = true}, slab) == Status::io_error);
    CHECK(device->available() == mib);
}

struct Ends final : CopyOwner {
    void copy_done(Copy& copy) override {
        CHECK(copy.status == Status::ok);
        ++count;
    }
    int count = 0;
};

TEST_CASE("bar channel: writes in place only with write combining, and never reads in place") {
    for (const bool combined : {true, false}) {
        FakeCard made;
        made.add(2, mib, combined);
        const auto device = open_bar_of(made, 2);
        CHECK(device->info().access.starts_with("write-combined") == combined);
        const OwnedSlab slab(*device, {.bytes = mib});
        CHECK_FALSE(device->sends_in_place());
        const auto channel = device->open_channel({});
        for (const std::uint32_t length : {1U, 4096U, 1U << 20}) {
            CHECK(channel->receives_into(slab, length) == combined);
        }
        CHECK(channel->options().chunk_size == 64 * kib);
        CHECK(device->open_channel({.chunk_size = 128 * kib})->options().chunk_size == 128 * kib);
    }
}

TEST_CASE("bar channel: copies complete in several polls, and reads are charged more") {
    bool combined = true;
    SUBCASE("write-combined") {}
    SUBCASE("not write-combined") { combined = false; }
    FakeCard made;
    made.add(2, 8 * mib, combined);
    const auto device = open_bar_of(made, 2);
    const OwnedSlab slab(*device, {.bytes = 8 * mib});
    const auto channel = device->open_channel({});
    constexpr std::uint32_t length = 64 << 10;
    std::vector<std::byte> staging(length);
    for (std::size_t i = 0; i != length; ++i) staging[i] = static_cast<std::byte>(i * 7 + 1);
    const auto copy_all = [&](Copy::Kind kind, std::byte* buffer) {
        Ends ends;
        std::vector<Copy> copies(32);
        for (std::size_t i = 0; i != copies.size(); ++i) {
            std::byte* const mapping = slab.cpu + i * length;
            copies[i].prepare(kind, length, slab.address + i * length,
                              kind == Copy::Kind::write ? nullptr : mapping, buffer, ends);
            channel->enqueue(copies[i]);
        }
        int polls = 0;
        for (; channel->busy(); ++polls) channel->poll();
        CHECK(ends.count == 32);
        return polls;
    };
    CHECK(copy_all(Copy::Kind::write, staging.data()) == 4);
    for (std::size_t i = 0; i != 32; ++i) {
        REQUIRE(std::memcmp(slab.cpu + i * length, staging.data(), length) == 0);
    }
    CHECK(all_are(slab.cpu + 2 * mib, 6 * mib, std::byte{0}));
    std::vector<std::byte> read(length);
    CHECK(copy_all(Copy::Kind::read, read.data()) == 32);
    CHECK(read == staging);
    CHECK(copy_all(Copy::Kind::zero, nullptr) == 4);
    CHECK(all_are(slab.cpu, 8 * mib, std::byte{0}));
}

}  // namespace
}  // namespace gpunbd::storage::test
