// What is left of a volume, and is not whole: refused in one phrase, and nothing of it is changed.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "storage/devices/faulty/faulty_device.hpp"
#include "storage/pages/volume.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/remains.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t left_page = 16 * mib;    // bytes; four of them are a slab
constexpr std::uint64_t left_shares[] = {6, 5};  // pages; so each device has two slabs
constexpr std::uint64_t left_pages = 11;

VolumeOptions left_options(Provision provision) {
    return {.size = left_pages * left_page, .page_size = left_page, .provision = provision};
}

// Two devices on which all of it fits, to the page.
struct TwoDevices {
    FaultScript script;
    std::vector<MemoryDevice*> memories;
    std::vector<std::unique_ptr<Device>> own;
    std::vector<Device*> all;

    TwoDevices() {
        for (const std::uint64_t share : left_shares) {
            auto memory = std::make_unique<MemoryDevice>(
                static_cast<std::uint32_t>(own.size()),
                MemoryDevice::Options{.capacity = share * left_page});
            memories.push_back(memory.get());
            own.push_back(make_faulty_device(std::move(memory), script));
            all.push_back(own.back().get());
        }
    }
    std::uint64_t used() const { return memories[0]->used() + memories[1]->used(); }
};

// Every page is mapped, and has a word of its own.
Remains of_a_whole_volume(Provision provision) {
    PlayedKeeper store;
    TwoDevices devices;
    auto made = Volume::create(left_options(provision), devices.all, {},
                               {.name = "left", .wanted = {}, .keeper = &store});
    REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(made));
    Volume& volume = *std::get<std::unique_ptr<Volume>>(made);
    for (std::uint64_t page = 0; page != left_pages; ++page) {
        PageRef ref;
        REQUIRE(volume.map(page, ref) == Status::ok);
        const std::uint64_t word = page + 1;
        std::memcpy(reinterpret_cast<std::byte*>(ref.address()), &word, sizeof word);
    }
    return look_at_remains(volume.table_descriptor(), store, left_page);
}

void set_word(Remains& remains, std::uint64_t index, std::uint64_t word) {
    std::uint64_t entries = 0;
    std::memcpy(&entries, &remains.table[24], sizeof entries);
    std::memcpy(&remains.table[entries + 8 * index], &word, sizeof word);
}
void set_entry(Remains& remains, std::uint64_t page, PageEntry entry) {
    set_word(remains, page, entry.word());
}
void set_slab(Remains& remains, std::uint32_t device, std::uint32_t slab, SlabEntry entry) {
    set_word(remains, left_pages + 2 * device + slab, entry.word());
}
void take_slab_away(Remains& remains, std::uint32_t device, std::uint32_t slab) {
    set_slab(remains, device, slab, {});
    remains.slabs.erase({device, slab});
}
void make_slab(Remains& remains, std::uint32_t device, std::uint32_t slab, std::uint64_t pages) {
    remains.slabs[{device, slab}] = {.bytes = pages * left_page,
                                     .pages = std::vector<PageWords>(pages)};
}

// Which files are open there.
std::vector<std::uint64_t> files_of(const std::vector<std::vector<int>>& descriptors) {
    std::vector<std::uint64_t> files;
    for (const auto& of_device : descriptors) {
        for (const int descriptor : of_device) {
            struct stat facts {};
            if (::fstat(descriptor, &facts) == 0) files.push_back(facts.st_ino);
        }
    }
    return files;
}

using Taken = std::variant<std::unique_ptr<Volume>, std::string>;

// Remains that somebody takes over.
struct Left {
    PlayedKeeper store;
    int table = -1;
    std::vector<std::vector<int>> slabs;

    explicit Left(const Remains& remains) : table(lay_out_again(remains, left_page, store)) {
        slabs = store.copies(2);
    }
    ~Left() {
        close_all(slabs);
        ::close(table);
    }
    Left(const Left&) = delete;
    Left& operator=(const Left&) = delete;

    Taken take_over(TwoDevices& devices) {
        auto opened = PageTable::open(::dup(table));
        REQUIRE(std::holds_alternative<PageTable>(opened));
        return Volume::take_over(std::move(std::get<PageTable>(opened)), devices.all, slabs, store);
    }
    Remains look() const { return look_at_remains(table, store, left_page); }
};

// It is refused with that phrase.
void check_refusal(Left& left, TwoDevices& devices, const std::string& expected) {
    const Remains before = left.look();
    const auto descriptors = left.slabs;
    const auto files = files_of(left.slabs);
    {
        const Taken taken = left.take_over(devices);
        const auto* const why = std::get_if<std::string>(&taken);
        REQUIRE(why != nullptr);
        CHECK(*why == expected);
    }
    CHECK(devices.used() == 0);
    CHECK(left.slabs == descriptors);
    CHECK(files_of(left.slabs) == files);
    CHECK(left.look() == before);
}

void check_whole(Left& left, TwoDevices& devices) {
    const Taken taken = left.take_over(devices);
    REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(taken));
    const Volume& volume = *std::get<std::unique_ptr<Volume>>(taken);
    for (std::uint64_t page = 0; page != left_pages; ++page) {
        const PageRef ref = volume.find(page);
        REQUIRE_FALSE(ref.hole());
        CHECK(*reinterpret_cast<const std::uint64_t*>(ref.address()) == page + 1);
    }
    CHECK(volume.allocated_bytes() == left_pages * left_page);
    CHECK(devices.used() == left_pages * left_page);
}

TEST_CASE("take over: what is whole is taken, and its descriptors with it") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        Left left(of_a_whole_volume(provision));
        TwoDevices devices;
        check_whole(left, devices);
        CHECK(files_of(left.slabs).empty());
        CHECK(left.store.numbers().size() == 4);
    }
}

TEST_CASE("take over: what is not whole is refused, and nothing of it is changed") {
    using Spoil = std::function<void(Remains&)>;
    const struct {
        std::string name;
        Spoil spoil;
        std::string why;
    } rows[] = {
        {"the first slab is missing",
         [](Remains& r) {
             r.slabs.erase({0, 0});
         },
         "on memory:0: slab 0 is missing"},
        {"the last slab is missing",
         [](Remains& r) {
             r.slabs.erase({1, 1});
         },
         "on memory:1: slab 1 is missing"},
        {"no slab is there", [](Remains& r) { r.slabs.clear(); }, "on memory:0: slab 0 is missing"},
        {"a slab is shorter", [](Remains& r) { make_slab(r, 1, 0, 3); },
         "on memory:1: slab 0 cannot be taken over"},
        {"a slab is longer", [](Remains& r) { make_slab(r, 0, 1, 4); },
         "on memory:0: slab 1 cannot be taken over"},
        {"a slab of an unknown kind",
         [](Remains& r) { set_slab(r, 0, 1, {.pages = 2, .kind = 9}); },
         "on memory:0: slab 1 cannot be taken over"},
        {"more pages than a slab has", [](Remains& r) { set_slab(r, 0, 0, {.pages = 5}); },
         "on memory:0: slab 0 has 5 pages, which cannot be"},
        {"very many pages", [](Remains& r) { set_slab(r, 1, 0, {.pages = 0xffffffff}); },
         "on memory:1: slab 0 has 4294967295 pages, which cannot be"},
        {"a page too few", [](Remains& r) { set_slab(r, 0, 0, {.pages = 3}); },
         "on memory:0: slab 0 has 3 pages, which cannot be"},
        {"more pages than the export has",
         [](Remains& r) {
             set_slab(r, 0, 1, {.pages = 4});
             make_slab(r, 0, 1, 4);
         },
         "on memory:0: slab 1 has 4 pages, which cannot be"},
        {"two slabs that have the rest",
         [](Remains& r) {
             set_slab(r, 0, 0, {.pages = 2});
             make_slab(r, 0, 0, 2);
         },
         "on memory:0: slab 1 has 2 pages, which cannot be"},
        {"a page without its slab", [](Remains& r) { set_slab(r, 1, 1, {}); },
         "on memory:1: page 4 is used, and its slab is not there"},
        {"a page behind the end of its slab",
         [](Remains& r) { set_entry(r, 5, PageEntry::mapped(0, 6)); },
         "on memory:0: page 6 is used, and its slab is not there"},
        {"a page behind all slabs", [](Remains& r) { set_entry(r, 5, PageEntry::mapped(0, 8)); },
         "page 5 is where it cannot be"},
        {"the last page number of all",
         [](Remains& r) { set_entry(r, 5, PageEntry::mapped(0, 0xffffffff)); },
         "page 5 is where it cannot be"},
        {"a page on the other device", [](Remains& r) { set_entry(r, 5, PageEntry::mapped(1, 4)); },
         "page 5 is where it cannot be"},
        {"a page on no device", [](Remains& r) { set_entry(r, 10, PageEntry::mapped(0xffff, 0)); },
         "page 10 is where it cannot be"},
        {"a page that two have", [](Remains& r) { set_entry(r, 5, PageEntry::mapped(0, 0)); },
         "page 5 is where another one is"},
        {"a state of the future", [](Remains& r) { set_word(r, 7, std::uint64_t{3} << 56); },
         "page 7 is in a state that this gpunbd does not know"},
        {"noise", [](Remains& r) { set_word(r, 0, ~std::uint64_t{0}); },
         "page 0 is in a state that this gpunbd does not know"},
    };
    for (const Provision provision : {Provision::thin, Provision::full}) {
        const Remains whole = of_a_whole_volume(provision);
        for (const auto& row : rows) {
            CAPTURE(row.name);
            Remains spoiled = whole;
            row.spoil(spoiled);
            Left left(spoiled);
            TwoDevices devices;
            check_refusal(left, devices, row.why);
        }
    }
}

TEST_CASE("take over: a device that fails to take a slab over leaves all as it was") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        const Remains whole = of_a_whole_volume(provision);
        for (std::int64_t slab = 0; slab != 4; ++slab) {
            CAPTURE(slab);
            Left left(whole);
            TwoDevices devices;
            devices.script.adoptions_until_failure = slab;
            check_refusal(left, devices,
                          "on memory:" + std::to_string(slab / 2) + ": slab " +
                              std::to_string(slab % 2) + " cannot be taken over");
            check_whole(left, devices);
        }
    }
}

bool is_addressed(const Volume& volume, std::uint64_t page) {
    return volume.find(page).cpu() != nullptr;
}

TEST_CASE("take over: the CPU comes to address what was put off, beside those who read") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        Left left(of_a_whole_volume(provision));
        TwoDevices devices;
        devices.script.in_place_up_to = 4096;
        devices.script.addressed_later = true;
        const Taken taken = left.take_over(devices);
        REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(taken));
        Volume& volume = *std::get<std::unique_ptr<Volume>>(taken);
        for (std::uint64_t page = 0; page != left_pages; ++page) {
            CHECK_FALSE(is_addressed(volume, page));
        }
        std::vector<std::thread> readers;
        for (std::uint64_t page = 0; page != left_pages; ++page) {
            readers.emplace_back([&volume, page] {
                while (!is_addressed(volume, page)) std::this_thread::yield();
                const PageRef ref = volume.find(page);
                CHECK(*reinterpret_cast<const std::uint64_t*>(ref.cpu()) == page + 1);
            });
        }
        CHECK_FALSE(volume.is_taken_over());
        volume.finish_taking_over();
        for (std::thread& each : readers) each.join();
        CHECK(volume.is_taken_over());
    }
}

TEST_CASE("take over: what the CPU cannot address, and what has gone meanwhile, does no harm") {
    Left left(of_a_whole_volume(Provision::thin));
    TwoDevices devices;
    devices.script.in_place_up_to = 4096;
    devices.script.addressed_later = true;
    const Taken taken = left.take_over(devices);
    REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(taken));
    Volume& volume = *std::get<std::unique_ptr<Volume>>(taken);
    // Both slabs of the first device go, and one comes again.
    for (std::uint64_t page = 0; page != left_shares[0]; ++page) volume.unmap(page);
    PageRef anew;
    REQUIRE(volume.map(0, anew) == Status::ok);
    devices.script.unaddressable = true;
    volume.finish_taking_over();
    volume.rest();  // behind what is under way
    volume.go_on();
    for (std::uint64_t page = left_shares[0]; page != left_pages; ++page) {
        CHECK_FALSE(is_addressed(volume, page));
        CHECK(*reinterpret_cast<const std::uint64_t*>(volume.find(page).address()) == page + 1);
    }
}

// Both devices lack the slab of their rest.
Remains of_one_that_was_not_finished() {
    Remains remains = of_a_whole_volume(Provision::full);
    for (const std::uint64_t page : {4, 5, 10}) set_entry(remains, page, PageEntry());
    take_slab_away(remains, 0, 1);
    take_slab_away(remains, 1, 1);
    return remains;
}

TEST_CASE("take over: of a full one that is not finished, the rest is made and kept") {
    Left left(of_one_that_was_not_finished());
    // The process died before the directory knew this one; the rest has its number.
    Remains with_another = of_one_that_was_not_finished();
    make_slab(with_another, 0, 1, 2);
    Left other(with_another);
    for (Left* const each : {&left, &other}) {
        TwoDevices devices;
        {
            const Taken taken = each->take_over(devices);
            REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(taken));
            Volume& volume = *std::get<std::unique_ptr<Volume>>(taken);
            CHECK(volume.allocated_bytes() == left_pages * left_page);
            CHECK(volume.mapped_bytes() == 8 * left_page);
            for (const std::uint64_t page : {4, 5, 10}) {
                PageRef ref;
                REQUIRE(volume.map(page, ref) == Status::ok);
                CHECK(*reinterpret_cast<const std::uint64_t*>(ref.address()) == 0);
                const std::uint64_t word = page + 1;
                std::memcpy(reinterpret_cast<std::byte*>(ref.address()), &word, sizeof word);
            }
        }
        close_all(each->slabs);
        CHECK(each->store.numbers().size() == 4);
        each->slabs = each->store.copies(2);
        check_whole(*each, devices);
    }
}

TEST_CASE("take over: without memory for the rest of a full one, what was made of it goes") {
    for (const bool is_refused : {false, true}) {
        CAPTURE(is_refused);
        Left left(of_one_that_was_not_finished());
        TwoDevices devices;
        left.store.refuse(is_refused);
        if (!is_refused) devices.memories[1]->set_capacity(4 * left_page);
        check_refusal(left, devices,
                      is_refused ? "on memory:0: there is no memory for the rest of it"
                                 : "on memory:1: there is no memory for the rest of it");
        left.store.refuse(false);
        devices.memories[1]->set_capacity(5 * left_page);
        const Taken taken = left.take_over(devices);
        CHECK(std::holds_alternative<std::unique_ptr<Volume>>(taken));
    }
}

TEST_CASE("take over: slabs that it does not know are forgotten, and their descriptors left") {
    Remains remains = of_a_whole_volume(Provision::thin);
    for (const std::uint64_t page : {4, 5}) set_entry(remains, page, PageEntry());
    set_slab(remains, 0, 1, {});
    make_slab(remains, 1, 7, 1);  // a number that it does not have
    Left left(remains);
    TwoDevices devices;
    const int unknown = left.slabs[0][1];
    const int beyond = left.slabs[1][7];
    const Taken taken = left.take_over(devices);
    REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(taken));
    CHECK(left.slabs ==
          std::vector<std::vector<int>>{{-1, unknown}, {-1, -1, -1, -1, -1, -1, -1, beyond}});
    CHECK(files_of(left.slabs).size() == 2);
    for (const auto& [device, slab] : left.store.numbers()) {
        CHECK_FALSE((device == 1 && slab == 7));
    }
    PageRef ref;
    CHECK(std::get<std::unique_ptr<Volume>>(taken)->map(4, ref) == Status::ok);
}

TEST_CASE("take over: a layout that cannot have been is refused") {
    TwoDevices devices;
    PlayedKeeper store;
    std::vector<std::vector<int>> none;
    TableShape shape{.name = {},
                     .wanted = {},
                     .size = 4 * left_page,
                     .page_size = left_page,
                     .stripe_size = left_page,
                     .devices = {{.identity = "0", .pages = 3, .slab_pages = 4, .slabs = 1},
                                 {.identity = "1", .pages = 1, .slab_pages = 1, .slabs = 1}}};
    SUBCASE("other shares than those of its stripes") {}
    SUBCASE("units so long that a round of them overflows") {
        shape.page_size = 4096;
        shape.size = 8192 * shape.page_size;
        shape.stripe_size = std::uint64_t{1} << 63;
        shape.devices.assign(8192, {.identity = "0", .pages = 1, .slab_pages = 1, .slabs = 1});
    }
    const Taken taken = Volume::take_over(PageTable(shape, true), devices.all, none, store);
    REQUIRE(std::holds_alternative<std::string>(taken));
    CHECK(std::get<std::string>(taken) == "its layout contradicts itself");
}

TEST_CASE("kept volume: one that does not come to its end leaves nothing kept") {
    PlayedKeeper store;
    TwoDevices devices;
    devices.script.allocations_until_failure = 3;
    const auto made = Volume::create(left_options(Provision::full), devices.all, {},
                                     {.name = "left", .wanted = {}, .keeper = &store});
    REQUIRE(std::holds_alternative<Misfit>(made));
    CHECK(std::get<Misfit>(made).device == 1);
    CHECK(store.numbers().empty());
    CHECK(devices.used() == 0);
}

}  // namespace
}  // namespace gpunbd::storage::test
