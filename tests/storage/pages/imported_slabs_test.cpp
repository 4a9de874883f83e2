// Slabs that are imported ahead of a takeover are used if they are unchanged, and never in place of
// others.
#include "storage/pages/imported_slabs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/storage/open_files.hpp"
#include "tests/storage/pages/abandoned_volume.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t whole_volume = left_pages * left_page;  // bytes

SlabEntry entry_of(const PageTable& table, std::uint32_t device, std::uint32_t slab) {
    return table.slabs(device).load(slab);
}

SlabRecord record_of(const SlabEntry& entry) {
    return {.bytes = entry.pages * left_page, .kind = entry.kind};
}

void import_all(ImportedSlabs& imported, const AbandonedVolume& left,
                std::uint32_t other_generation) {
    auto opened = PageTable::open(OwnedFd::copy_of(left.table.get()));
    const PageTable& table = std::get<PageTable>(opened);
    auto copies = left.store->copies();
    for (auto& [device, slabs] : copies) {
        for (auto& [slab, descriptor] : slabs) {
            SlabEntry entry = entry_of(table, device, slab);
            // Slab 0 of each device gets the memory of another slab, as after its release.
            if (slab == 0 && other_generation != 0) {
                entry.generation += other_generation;
                descriptor = OwnedFd::copy_of(copies[1 - device].at(0).get());
            }
            imported.import(device, slab, entry, record_of(entry),
                            OwnedFd::copy_of(descriptor.get()));
        }
    }
}

Taken take_over(const AbandonedVolume& left, TwoDevices& devices, ImportedSlabs& imported) {
    auto opened = PageTable::open(OwnedFd::copy_of(left.table.get()));
    return Volume::take_over(std::move(std::get<PageTable>(opened)), devices.all,
                             left.store->copies(), left.store, false, &imported);
}

void check_contents(const Taken& taken) {
    REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(taken));
    const Volume& volume = *std::get<std::unique_ptr<Volume>>(taken);
    for (std::uint64_t page = 0; page != left_pages; ++page) {
        const PageRef ref = volume.find(page);
        REQUIRE_FALSE(ref.hole());
        CHECK(*reinterpret_cast<const std::uint64_t*>(ref.address()) == page + 1);
    }
}

TEST_CASE("imported slabs: unchanged slabs are not imported again") {
    const AbandonedVolume left(whole_volume_image(Provision::thin));
    TwoDevices devices;
    const std::size_t files = open_files();
    {
        ImportedSlabs imported(devices.all);
        import_all(imported, left, 0);
        CHECK(devices.used() == whole_volume);
        const Taken taken = take_over(left, devices, imported);
        CHECK(devices.used() == whole_volume);
        check_contents(taken);
    }
    CHECK(devices.used() == 0);
    CHECK(open_files() == files);
}

TEST_CASE("imported slabs: a slab whose number has been reused is released") {
    const AbandonedVolume left(whole_volume_image(Provision::thin));
    TwoDevices devices;
    {
        ImportedSlabs imported(devices.all);
        import_all(imported, left, 1);
        const Taken taken = take_over(left, devices, imported);
        CHECK(devices.used() > whole_volume);
        check_contents(taken);
    }
    CHECK(devices.used() == 0);
}

TEST_CASE("imported slabs: a failed takeover leaves nothing behind") {
    const AbandonedVolume left([] {
        CrashImage image = whole_volume_image(Provision::thin);
        image.slabs.erase({1, 1});
        return image;
    }());
    TwoDevices devices;
    const std::size_t files = open_files();
    const CrashImage before = left.read();
    {
        ImportedSlabs imported(devices.all);
        import_all(imported, left, 0);
        CHECK(std::holds_alternative<std::string>(take_over(left, devices, imported)));
    }
    CHECK(devices.used() == 0);
    CHECK(open_files() == files);
    CHECK(left.read() == before);
}

TEST_CASE("imported slabs: a reused number has another generation") {
    const auto keeper = std::make_shared<FakeParts>();
    TwoDevices devices;
    auto made = Volume::create(left_options(Provision::thin), devices.all, {},
                               {.name = "left", .wanted = {}, .kept_parts = keeper});
    Volume& volume = *std::get<std::unique_ptr<Volume>>(made);
    const auto map_all = [&] {
        for (std::uint64_t page = 0; page != left_pages; ++page) {
            PageRef ref;
            REQUIRE(volume.map(page, ref) == Status::ok);
        }
    };
    map_all();
    const auto before = volume.copy_slabs();
    for (std::uint64_t page = 0; page != left_pages; ++page) volume.unmap(page);
    for (Device* const device : devices.all) {
        while (device->releases().pending()) std::this_thread::yield();
    }
    map_all();
    const auto after = volume.copy_slabs();
    REQUIRE(before.size() == 4);
    REQUIRE(after.size() == 4);
    std::size_t renewed = 0;
    for (std::size_t i = 0; i != after.size(); ++i) {
        CHECK(before[i].copy.slab == after[i].copy.slab);
        if (before[i].copy.entry != after[i].copy.entry) ++renewed;
    }
    CHECK(renewed == 2);  // each device kept one empty slab
}

}  // namespace
}  // namespace gpunbd::storage::test
