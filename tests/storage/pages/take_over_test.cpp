// Incomplete or invalid volumes are refused with a reason, and nothing is changed.
#include "tests/storage/no_threads.hpp"
#include "tests/storage/open_files.hpp"
#include "tests/storage/pages/abandoned_volume.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

// Checks that the takeover is refused with this reason.
void check_refusal(AbandonedVolume& left, TwoDevices& devices, const std::string& expected) {
    const CrashImage before = left.read();
    const std::size_t files = open_files();
    CHECK(failure_of(left.take_over(devices)) == expected);
    CHECK(devices.used() == 0);
    CHECK(open_files() == files);
    CHECK(left.read() == before);
}

TEST_CASE("take over: an incomplete or invalid volume is refused and not changed") {
    using Spoil = std::function<void(CrashImage&)>;
    const std::tuple<std::string, Spoil, std::string> rows[] = {
        {"the first slab is missing",
         [](CrashImage& r) {
             r.slabs.erase({0, 0});
         },
         "on memory:0: slab 0 is missing"},
        {"the last slab is missing",
         [](CrashImage& r) {
             r.slabs.erase({1, 1});
         },
         "on memory:1: slab 1 is missing"},
        {"no slab is there", [](CrashImage& r) { r.slabs.clear(); },
         "on memory:0: slab 0 is missing"},
        {"a slab is shorter", [](CrashImage& r) { make_slab(r, 1, 0, 3); },
         "on memory:1: slab 0 cannot be taken over"},
        {"a slab is longer", [](CrashImage& r) { make_slab(r, 0, 1, 4); },
         "on memory:0: slab 1 cannot be taken over"},
        {"a slab of an unknown kind",
         [](CrashImage& r) { set_slab(r, 0, 1, {.pages = 2, .kind = 9}); },
         "on memory:0: slab 1 cannot be taken over"},
        {"more pages than a slab has", [](CrashImage& r) { set_slab(r, 0, 0, {.pages = 5}); },
         "on memory:0: slab 0 has an invalid number of pages: 5"},
        {"very many pages", [](CrashImage& r) { set_slab(r, 1, 0, {.pages = 0xffffffff}); },
         "on memory:1: slab 0 has an invalid number of pages: 4294967295"},
        {"a page too few", [](CrashImage& r) { set_slab(r, 0, 0, {.pages = 3}); },
         "on memory:0: slab 0 has an invalid number of pages: 3"},
        {"more pages than the export has",
         [](CrashImage& r) {
             set_slab(r, 0, 1, {.pages = 4});
             make_slab(r, 0, 1, 4);
         },
         "on memory:0: slab 1 has an invalid number of pages: 4"},
        {"two slabs that have the rest",
         [](CrashImage& r) {
             set_slab(r, 0, 0, {.pages = 2});
             make_slab(r, 0, 0, 2);
         },
         "on memory:0: slab 1 has an invalid number of pages: 2"},
        {"a page without its slab", [](CrashImage& r) { set_slab(r, 1, 1, {}); },
         "on memory:1: page 4 is used, and its slab is missing"},
        {"a page behind the end of its slab",
         [](CrashImage& r) { set_entry(r, 5, PageEntry::mapped(0, 6)); },
         "on memory:0: page 6 is used, and its slab is missing"},
        {"a page behind all slabs", [](CrashImage& r) { set_entry(r, 5, PageEntry::mapped(0, 8)); },
         "page 5 has an invalid location"},
        {"the last page number of all",
         [](CrashImage& r) { set_entry(r, 5, PageEntry::mapped(0, 0xffffffff)); },
         "page 5 has an invalid location"},
        {"a page on the other device",
         [](CrashImage& r) { set_entry(r, 5, PageEntry::mapped(1, 4)); },
         "page 5 has an invalid location"},
        {"a page on no device",
         [](CrashImage& r) { set_entry(r, 10, PageEntry::mapped(0xffff, 0)); },
         "page 10 has an invalid location"},
        {"a page that two have", [](CrashImage& r) { set_entry(r, 5, PageEntry::mapped(0, 0)); },
         "page 5 has the same location as another page"},
        {"a state of the future",
         [](CrashImage& r) { set_entry(r, 7, PageEntry(std::uint64_t{4} << 56)); },
         "page 7 is in an unknown state"},
        {"noise", [](CrashImage& r) { set_entry(r, 0, PageEntry(~std::uint64_t{0})); },
         "page 0 is in an unknown state"},
    };
    for (const Provision provision : {Provision::thin, Provision::full}) {
        const CrashImage whole = whole_volume_image(provision);
        for (const auto& [name, spoil, why] : rows) {
            CAPTURE(name);
            CrashImage spoiled = whole;
            spoil(spoiled);
            AbandonedVolume left(spoiled);
            TwoDevices devices;
            check_refusal(left, devices, why);
        }
    }
}

TEST_CASE("take over: if a device fails to take over a slab, nothing is changed or leaked") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        const CrashImage whole = whole_volume_image(provision);
        for (std::int64_t slab = 0; slab != 4; ++slab) {
            CAPTURE(slab);
            AbandonedVolume left(whole);
            TwoDevices devices;
            devices.script.take_overs_until_failure = slab;
            const std::size_t files = open_files();
            check_refusal(left, devices,
                          "on memory:" + std::to_string(slab / 2) + ": slab " +
                              std::to_string(slab % 2) + " cannot be taken over");
            check_whole(left, devices);
            CHECK(open_files() == files);
        }
    }
}

bool is_addressed(const Volume& volume, std::uint64_t page) {
    return volume.find(page).cpu() != nullptr;
}

TEST_CASE("take over: deferred slabs become CPU-addressable while readers use them") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        AbandonedVolume left(whole_volume_image(provision));
        TwoDevices devices;
        devices.script.in_place_up_to = 4096;
        devices.script.addressed_later = true;
        const auto taken = checked(left.take_over(devices));
        Volume& volume = *taken;
        for (std::uint64_t page = 0; page != left_pages; ++page) {
            CHECK_FALSE(is_addressed(volume, page));
        }
        std::vector<std::thread> readers;
        for (std::uint64_t page = 0; page != left_pages; ++page) {
            readers.emplace_back([&volume, page] {
                while (!is_addressed(volume, page)) std::this_thread::yield();
                const PageRef ref = volume.find(page);
                CHECK(word_of(ref) == page + 1);
            });
        }
        CHECK_FALSE(volume.takeover_finished());
        volume.finish_takeover();
        for (std::thread& each : readers) each.join();
        CHECK(volume.takeover_finished());
    }
}

TEST_CASE("take over: unaddressable and meanwhile released slabs are no error") {
    AbandonedVolume left(whole_volume_image(Provision::thin));
    TwoDevices devices;
    devices.script.in_place_up_to = 4096;
    devices.script.addressed_later = true;
    const auto taken = checked(left.take_over(devices));
    Volume& volume = *taken;
    // Both slabs of the first device are released, and one is allocated again.
    for (std::uint64_t page = 0; page != left_shares[0]; ++page) volume.unmap(page);
    PageRef anew = map_page(volume, 0);
    devices.script.unaddressable = true;
    volume.finish_takeover();
    volume.quiesce();  // waits for work in progress
    volume.resume();
    for (std::uint64_t page = left_shares[0]; page != left_pages; ++page) {
        CHECK_FALSE(is_addressed(volume, page));
        CHECK(read_word(volume, page) == page + 1);
    }
}

TEST_CASE("take over: an incomplete full volume is completed and kept") {
    AbandonedVolume left(unfinished_volume_image());
    // The process died before it recorded this slab, whose number is used again.
    CrashImage with_another = unfinished_volume_image();
    make_slab(with_another, 0, 1, 2);
    AbandonedVolume other(with_another);
    for (AbandonedVolume* const each : {&left, &other}) {
        TwoDevices devices;
        {
            const auto volume = checked(each->take_over(devices));
            CHECK(volume->allocated_bytes() == left_pages * left_page);
            CHECK(volume->mapped_bytes() == 8 * left_page);
            for (const std::uint64_t page : {4, 5, 10}) {
                PageRef ref = map_page(*volume, page);
                CHECK(word_of(ref) == 0);
                word_of(ref) = page + 1;
            }
        }
        CHECK(each->store->numbers().size() == 4);
        check_whole(*each, devices);
    }
}

TEST_CASE("take over: if an incomplete full volume cannot be completed, its additions are freed") {
    for (const bool is_refused : {false, true}) {
        CAPTURE(is_refused);
        AbandonedVolume left(unfinished_volume_image());
        TwoDevices devices;
        left.store->refuse(is_refused);
        if (!is_refused) devices.memories[1]->set_capacity(4 * left_page);
        check_refusal(left, devices,
                      is_refused ? "on memory:0: not enough memory for the rest of it"
                                 : "on memory:1: not enough memory for the rest of it");
        left.store->refuse(false);
        devices.memories[1]->set_capacity(5 * left_page);
        checked(left.take_over(devices));
    }
}

TEST_CASE("take over: unknown slabs are discarded, and their descriptors closed") {
    CrashImage image = whole_volume_image(Provision::thin);
    for (const std::uint64_t page : {4, 5}) set_entry(image, page, PageEntry());
    set_slab(image, 0, 1, {});
    make_slab(image, 1, 7, 1);  // an unknown number
    make_slab(image, 2, 0, 1);  // an unknown device
    const AbandonedVolume left(image);
    TwoDevices devices;
    const std::size_t files = open_files();
    const auto taken = checked(left.take_over(devices, true));  // no slab is allocated ahead
    const std::vector<FakeParts::Number> known{{0, 0}, {1, 0}, {1, 1}};
    CHECK(left.store->numbers() == known);
    // The kept parts have closed three descriptors. The volume has opened the table and the known
    // slabs.
    CHECK(open_files() == files - 3 + 1 + known.size());
    PageRef ref;
    CHECK(taken->map(4, ref) == Status::ok);
}

// Counts overlapping calls, which must not happen.
class OneAtATime final : public LatchDevice {
 public:
    OneAtATime() : LatchDevice(0, {}) { addressed_later = true; }
    std::byte* address(const Slab& slab) override {
        if (releasing.is_holding()) ++overlaps;
        return LatchDevice::address(slab);
    }
    void release(Slab& slab) noexcept override {
        if (addressing.is_holding()) ++overlaps;
        LatchDevice::release(slab);
    }
    std::atomic<int> overlaps{0};
};

// The thread, which could not be started at first, starts later. Meanwhile another thread releases
// slabs that the provisioner might be about to map.
TEST_CASE("take over: no slab is released while another one is mapped") {
    constexpr std::uint64_t slab = 64 * mib;  // one page per slab
    constexpr std::uint64_t slabs = 6;
    const auto store = std::make_shared<FakeParts>();
    MemoryDevice maker(0, {});
    const auto before =
        checked(Volume::create({.size = slabs * slab, .page_size = slab}, {&maker}, {},
                               {.name = "left", .wanted = {}, .kept_parts = store}));
    for (std::uint64_t page = 0; page != slabs; ++page) write_word(*before, page, 1);
    before->quiesce();
    PageTable table = checked(PageTable::open(OwnedFd::copy_of(before->table_descriptor())));
    OneAtATime device;
    std::unique_ptr<Volume> volume;
    {
        const NoThreads none;
        volume = checked(Volume::take_over(std::move(table), {&device}, store->copies(), store));
    }
    device.releasing.close();
    device.addressing.close();
    std::atomic<bool> may_begin{false};
    std::thread client([&] {
        may_begin.wait(false);
        for (std::uint64_t page = 0; page != slabs - 1; ++page) volume->unmap(page);
    });
    {
        const NoThreads none;
        may_begin = true;
        may_begin.notify_all();
        device.releasing.wait_for_one();
    }
    volume->finish_takeover();  // starts the thread
    for (int i = 0; i != 100 && !device.addressing.is_holding(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // gives errors time to show
    }
    device.releasing.open();
    client.join();
    device.addressing.open();
    while (!volume->takeover_finished()) std::this_thread::yield();
    CHECK(device.overlaps == 0);
}

TEST_CASE("take over: an invalid layout is refused") {
    TwoDevices devices;
    TableShape shape{.name = {},
                     .wanted = {},
                     .size = 4 * left_page,
                     .page_size = left_page,
                     .stripe_size = left_page,
                     .devices = {{.identity = "0", .pages = 3, .slab_pages = 4, .slabs = 1},
                                 {.identity = "1", .pages = 1, .slab_pages = 1, .slabs = 1}}};
    SUBCASE("shares that do not match the stripes") {}
    SUBCASE("stripes so long that a round of them overflows") {
        shape.page_size = 4096;
        shape.size = 8192 * shape.page_size;
        shape.stripe_size = std::uint64_t{1} << 63;
        shape.devices.assign(8192, {.identity = "0", .pages = 1, .slab_pages = 1, .slabs = 1});
    }
    CHECK(failure_of(Volume::take_over(PageTable(shape, true), devices.all, {},
                                       std::make_shared<FakeParts>())) ==
          "its layout is inconsistent");
}

// The supervisor has stored the slab too late, so it is neither used nor kept.
TEST_CASE("kept volume: a slab that was stored too late is forgotten") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        const auto store = std::make_shared<FakeParts>();
        TwoDevices devices;
        store->keep_too_late(provision == Provision::full);
        auto made = left_volume(provision, devices, store);
        if (provision == Provision::full) {
            CHECK(std::holds_alternative<CapacityError>(made));
        } else {
            const auto volume = checked(std::move(made));
            store->keep_too_late(true);
            PageRef ref;
            CHECK(volume->map(0, ref) == Status::no_space);
            CHECK(store->numbers().empty());
            CHECK(devices.used() == 0);
            store->keep_too_late(false);
            CHECK(volume->map(0, ref) == Status::ok);
            volume->quiesce();  // waits for allocations ahead of need
        }
        CHECK(store->numbers().empty() == (provision == Provision::full));
    }
}

TEST_CASE("kept volume: owns its kept parts") {
    TwoDevices devices;
    for (const bool taken_over : {false, true}) {
        AbandonedVolume left(whole_volume_image(Provision::thin));
        std::unique_ptr<Volume> volume =
            taken_over ? checked(left.take_over(devices))
                       : checked(left_volume(Provision::thin, devices, left.store));
        const std::weak_ptr<FakeParts> kept_parts = left.store;
        left.store.reset();
        CHECK_FALSE(kept_parts.expired());
        volume.reset();
        CHECK(kept_parts.expired());
    }
}

TEST_CASE("kept volume: a volume that fails during creation leaves nothing kept") {
    const auto store = std::make_shared<FakeParts>();
    TwoDevices devices;
    devices.script.allocations_until_failure = 3;
    const auto made = left_volume(Provision::full, devices, store);
    REQUIRE(std::holds_alternative<CapacityError>(made));
    CHECK(std::get<CapacityError>(made) ==
          CapacityError{.device = 1, .asked = left_shares[1] * left_page, .ran_out = true});
    CHECK(store->numbers().empty());
    CHECK(devices.used() == 0);
}

}  // namespace
}  // namespace gpunbd::storage::test
