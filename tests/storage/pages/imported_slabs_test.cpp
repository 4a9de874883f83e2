// Slabs that are imported ahead of a takeover are used if they are unchanged, and never in place of
// others.
#include "storage/pages/imported_slabs.hpp"

#include "tests/storage/open_files.hpp"
#include "tests/storage/pages/abandoned_volume.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t whole_volume = left_pages * left_page;  // bytes

void import_all(ImportedSlabs& imported, const AbandonedVolume& left,
                std::uint32_t other_generation) {
    const PageTable table = checked(PageTable::open(OwnedFd::copy_of(left.table.get())));
    auto copies = left.store->copies();
    for (auto& [device, slabs] : copies) {
        for (auto& [slab, descriptor] : slabs) {
            SlabEntry entry = table.slabs(device).load(slab);
            // Slab 0 of each device gets the memory of another slab, as after its release.
            if (slab == 0 && other_generation != 0) {
                entry.generation += other_generation;
                descriptor = OwnedFd::copy_of(copies[1 - device].at(0).get());
            }
            imported.import(device, slab, entry,
                            {.bytes = entry.pages * left_page, .kind = entry.kind},
                            OwnedFd::copy_of(descriptor.get()));
        }
    }
}

TEST_CASE("imported slabs: unchanged ones are used, and those with a reused number released") {
    for (const std::uint32_t other_generation : {0U, 1U}) {
        CAPTURE(other_generation);
        const AbandonedVolume left(whole_volume_image(Provision::thin));
        TwoDevices devices;
        const std::size_t files = open_files();
        {
            ImportedSlabs imported(devices.all);
            import_all(imported, left, other_generation);
            CHECK(devices.used() == whole_volume);
            const auto volume = checked(left.take_over(devices, false, &imported));
            CHECK((devices.used() == whole_volume) == (other_generation == 0));
            check_words(*volume);
        }
        CHECK(devices.used() == 0);
        CHECK(open_files() == files);
    }
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
        CHECK(failure_of(left.take_over(devices, false, &imported)) != "");
    }
    CHECK(devices.used() == 0);
    CHECK(open_files() == files);
    CHECK(left.read() == before);
}

TEST_CASE("imported slabs: a reused number has another generation") {
    const auto keeper = std::make_shared<FakeParts>();
    TwoDevices devices;
    const auto made = checked(left_volume(Provision::thin, devices, keeper));
    Volume& volume = *made;
    const auto map_all = [&] {
        for (std::uint64_t page = 0; page != left_pages; ++page) write_word(volume, page, 1);
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
