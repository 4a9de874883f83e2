// Pages leave a device and return while clients read, write and trim them.
#include "storage/migration/migrator.hpp"

#include "tests/storage/devices/file/no_writes.hpp"
#include "tests/storage/family.hpp"
#include "tests/storage/migration/moving_rig.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/pages/page_waiter.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t all = MovingRig::all;

RigOptions options_of(std::string_view home, std::string_view spills) {
    RigOptions options{.devices = home, .spills = spills};
    options.size = 40 * options.page_size;
    return options;
}

void write(MovingRig& rig, std::uint64_t offset, std::uint32_t length, std::uint32_t seed) {
    REQUIRE(Requests{rig, Random(seed), {}, seed}.write(offset, length) == Status::ok);
}

// 5,000 bytes in each page before `end`.
void write_pages(MovingRig& rig, std::uint64_t end, std::uint64_t at = 0, std::uint32_t from = 0) {
    for (std::uint32_t page = from; page != end; ++page) {
        write(rig, page * rig.options.page_size + at, 5000, page + 1);
    }
}

void check_contents(MovingRig& rig) {
    for (std::uint64_t page = 0; page != rig.pages(); ++page) {
        REQUIRE(Requests{rig, Random(1)}.read(page * rig.options.page_size,
                                              static_cast<std::uint32_t>(rig.options.page_size)) ==
                Status::ok);
    }
}

void check_spill_is_empty(MovingRig& rig) {
    while (rig.devices[1]->releases().pending()) std::this_thread::yield();
    CHECK(rig.spill_budget.used() == 0);
}

TEST_CASE("migrator: all pages leave the device and return, with their contents") {
    struct Row {
        const char* home;
        const char* spills;
        unsigned threads;
        bool spills_later = false;
    };
    constexpr Row rows[] = {{"h", "h", 1},       {"h", "h", 4},       {"s", "h", 1},
                            {"s", "h", 4},       {"h", "s", 4},       {"s", "s", 1},
                            {"s", "s", 4},       {"s", "hs", 4},      {"h", "f", 4},
                            {"s", "f", 1},       {"v", "h", 1},       {"w", "h", 4},
                            {"h", "w", 4},       {"w", "v", 4},       {"h", "h", 4, true},
                            {"s", "h", 4, true}, {"h", "s", 4, true}, {"s", "f", 4, true}};
    for (const auto& [home, spills, threads, spills_later] : rows) {
        if (!has_devices(std::string(home) + spills)) continue;
        CAPTURE(home);
        CAPTURE(spills);
        CAPTURE(threads);
        CAPTURE(spills_later);
        RigOptions options = options_of(home, spills);
        options.spills_later = spills_later;
        MovingRig rig(options, threads);
        for (std::uint32_t page = 0; page < rig.pages(); page += 2) {
            write(rig, page * rig.options.page_size + 1000, 100000, page + 1);
        }
        if (spills_later) {
            CHECK(rig.reclaim(all).moved.empty());
            rig.release();
            REQUIRE(rig.set_spills({1}) == "");
        }
        const std::uint64_t mapped = rig.volume->mapped_bytes();
        const Migration out = rig.reclaim(all);
        CHECK(out.error.empty());
        CHECK(out.released == out.wanted);
        CHECK(out.moved.at(rig.devices[1]->info().id) == mapped);
        CHECK(rig.home().budget().used() == 0);
        if (*home == 'h' || *home == 's') CHECK(rig.memories[0]->used() == 0);
        CHECK(rig.bytes_on(0) == 0);
        check_contents(rig);
        write(rig, 0, 4000, 99);                      // in the spill memory
        write(rig, rig.options.page_size, 4000, 98);  // a hole, which cannot be mapped at home
        CHECK(rig.bytes_on(0) == 0);
        const Migration back = rig.release();
        CHECK(back.moved.at(rig.home().info().id) == mapped + rig.options.page_size);
        CHECK(rig.bytes_on(0) == rig.volume->mapped_bytes());
        check_spill_is_empty(rig);
        check_contents(rig);
    }
}

TEST_CASE("migrator: it moves no more than asked, and the slab whose pages are used stays") {
    for (const std::uint64_t used : {0, 15}) {
        CAPTURE(used);
        MovingRig rig(large_pages("h", "h"));
        rig.map_all();
        rig.tick();  // the thread has taken the present use for its beginning
        rig.volume->find(used);
        const std::uint64_t before = rig.home().budget().used();
        const Migration out = rig.reclaim(192 * mib);
        CHECK(out.released == 192 * mib);
        CHECK(rig.home().budget().used() == before - 192 * mib);
        CHECK(out.moved.at("memory:1") <= 192 * mib);
        CHECK(rig.volume->slot(used).load().device() == 0);
    }
}

TEST_CASE("migrator: memory of a slab that could not be released is used again") {
    RigOptions options = large_pages("h", "h");
    options.size = 4 * options.page_size;  // a slab
    options.capacity = options.size;
    MovingRig rig(options);
    PageRef page;
    for (std::uint64_t number = 0; number != 3; ++number) {
        REQUIRE(rig.volume->map(number, page) == Status::ok);
    }
    page = rig.volume->find(0);  // a slow client reads it
    const Migration out = rig.reclaim(all);
    CHECK(out.released == 0);
    CHECK(rig.bytes_on(1) == 3 * options.page_size);
    // The page that is read does not count: the slab has room for the three.
    CHECK_FALSE(rig.release().no_room);
    CHECK(rig.bytes_on(0) == 3 * options.page_size);
}

// The page pool allocates a smaller slab at once, since less than the released slab is wanted.
TEST_CASE("migrator: it does not wait for another slab that has the number of a released one") {
    RigOptions options = options_of("h", "h");
    options.slow = true;
    MovingRig rig(options);
    rig.map_all();
    rig.reclaim(options.page_size);  // of an empty slab
    rig.release();
    auto shortest = std::chrono::nanoseconds::max();
    for (int round = 0; round != 5; ++round) {
        const Migration out = rig.reclaim(options.page_size);
        CHECK(out.missing() == 0);
        shortest = std::min(shortest, out.duration);
        rig.release();
    }
    CHECK(shortest < 500ms);  // it would wait so long
}

TEST_CASE("migrator: with too little spill memory the rest stays, and the result says so") {
    MovingRig rig(options_of("h", "h"));
    write_pages(rig, 40);
    rig.spill_budget.set_limit(0);
    const Migration out = rig.reclaim(all);
    CHECK(out.no_room);
    CHECK(out.released == 0);
    CHECK(out.moved.empty());
    CHECK(rig.migrator.totals().unmet == out.wanted);
    check_contents(rig);
}

TEST_CASE("migrator: pages of zeroes are not copied to the other device") {
    MovingRig rig(options_of("h", "s"));
    write(rig, 0, 5000, 1);
    rig.map_all();
    rig.script.copies_seen = 0;
    rig.script.zero_copies_seen = 0;
    CHECK(rig.reclaim(all).moved.at("memory:1") == rig.volume->mapped_bytes());
    const std::uint64_t chunks = rig.options.page_size / rig.options.channels.chunk_size;
    CHECK(rig.script.copies_seen == rig.pages() * chunks);
    CHECK(rig.script.copies_seen - rig.script.zero_copies_seen == 1);
    check_contents(rig);
}

TEST_CASE("migrator: a page is copied for the sake of its last byte") {
    MovingRig rig(options_of("h", "s"));
    const std::uint32_t chunk = rig.options.channels.chunk_size;
    for (std::uint32_t page = 0; page != rig.pages(); ++page) {
        write(rig, page * rig.options.page_size + chunk - 1, 1, page + 1);
    }
    CHECK(rig.reclaim(all).error.empty());
    CHECK(rig.bytes_on(0) == 0);
    check_contents(rig);
}

TEST_CASE("migrator: pages leave revocable memory for slabs of the device, or for a file") {
    struct Row {
        const char* spills;
        bool is_full;  // the device
        bool leaves;
    };
    for (const auto& [spills, is_full, leaves] :
         {Row{"f", false, true}, {"h", false, true}, {"h", true, false}, {"hf", true, true}}) {
        CAPTURE(spills);
        CAPTURE(is_full);
        RigOptions options = large_pages("s", spills);
        if (is_full) options.capacity = options.size;
        MovingRig rig(options);
        rig.script.revocable = true;
        write_pages(rig, is_full ? 16 : 12);
        rig.script.revocable = false;
        const Migration out = rig.give_up_revocable(64 * mib);
        CHECK(out.released == (leaves ? 64 * mib : 0));
        CHECK(out.no_room == is_full);
        const Device& target = is_full ? *rig.devices.back() : rig.home();
        CHECK(out.moved.contains(target.info().id) == leaves);
        std::uint32_t revocable = 0;
        for (std::uint32_t slab = 0; slab != rig.volume->pool(0).memory().slabs().count(); ++slab) {
            if (rig.volume->pool(0).memory().kind_of(slab) == SlabKind::revocable) ++revocable;
        }
        CHECK(revocable == (is_full ? 4U : 3U) - (leaves ? 1U : 0U));
        CHECK(rig.home().budget().limit() == SlabBudget::unlimited);
        check_contents(rig);
    }
}

TEST_CASE(
    "migrator: pages that are used leave revocable slabs, and unused ones take their places") {
    for (const std::uint32_t written : {8U, 16U}) {  // of 16; then a slab has to be allocated
        CAPTURE(written);
        RigOptions options = large_pages("s", "h");
        MovingRig rig(options);
        PagePool& pool = rig.volume->pool(0);
        const auto kind_of = [&](std::uint64_t page) {
            return pool.memory().kind_of(
                pool.memory().slabs().numbers().slab_of(rig.volume->slot(page).load().page()));
        };
        rig.script.revocable = true;
        write_pages(rig, 4);
        rig.script.revocable = false;
        write_pages(rig, written, 0, 4);
        rig.script.revocable = true;  // if the device has the choice
        for (int tick = 0; tick != 8; ++tick) {
            for (const std::uint64_t used : {1, 2, 5}) {
                write(rig, used * options.page_size + 5000, 100, 9);
            }
            rig.tick();
        }
        std::uint32_t revocable = 0;
        for (std::uint64_t page = 0; page != written; ++page) {
            revocable += kind_of(page) == SlabKind::revocable ? 1 : 0;
        }
        CHECK(revocable == 4);
        for (const std::uint64_t used : {1, 2, 5}) CHECK(kind_of(used) == SlabKind::fixed);
        check_contents(rig);
        // It comes to rest. On a busy machine, the provisioner's last slab may arrive only now.
        const auto moves = [&] {
            const auto before = rig.script.copies_seen.load();
            rig.tick();
            return rig.script.copies_seen != before;
        };
        int ticks = 0;
        while (moves() && ticks != 100) ++ticks;
        CHECK(ticks < 100);
    }
}

TEST_CASE("migrator: stripes over two devices leave and return one device at a time") {
    RigOptions options = options_of("sh", "h");
    options.stripe_size = options.page_size;
    MovingRig rig(options);
    write_pages(rig, 40, 10);
    const std::uint64_t half = rig.bytes_on(0);
    CHECK(rig.reclaim(all).moved.at("memory:2") == half);
    CHECK(rig.bytes_on(0) == 0);
    CHECK(rig.bytes_on(1) == half);
    check_contents(rig);
    rig.release();
    CHECK(rig.bytes_on(0) == half);
    CHECK(rig.bytes_on(1) == half);
    check_contents(rig);
}

// Two slabs of four pages.
RigOptions full_volume(std::string_view home, std::string_view spills) {
    RigOptions options = large_pages(home, spills);
    options.size = 8 * options.page_size;
    options.provision = Provision::full;
    return options;
}

TEST_CASE("migrator: the slabs of a full volume leave, and all return with its pages") {
    for (const auto& [home, spills] :
         {std::pair("h", "h"), std::pair("s", "h"), std::pair("h", "s")}) {
        CAPTURE(home);
        CAPTURE(spills);
        const RigOptions options = full_volume(home, spills);
        MovingRig rig(options);
        for (const std::uint32_t page : {1U, 6U}) write(rig, page * options.page_size, 5000, page);
        const Migration out = rig.reclaim(all);
        CHECK(out.released == options.size);
        CHECK(rig.memories[0]->used() == 0);
        CHECK(rig.bytes_on(1) == 2 * options.page_size);
        write(rig, 3 * options.page_size, 5000, 3);  // a hole
        check_contents(rig);
        const Migration back = rig.release();
        CHECK_FALSE(back.no_room);
        CHECK(rig.bytes_on(0) == 3 * options.page_size);
        CHECK(rig.home().budget().used() == options.size);
        CHECK(rig.spill_budget.used() == 0);
        check_contents(rig);
    }
}

TEST_CASE("migrator: a full volume keeps memory for all of its pages") {
    const RigOptions options = full_volume("h", "h");
    MovingRig rig(options);
    rig.spill_budget.set_limit(64 * mib);  // one slab
    const Migration out = rig.reclaim(all);
    CHECK(out.released == 64 * mib);
    CHECK(out.no_room);
    rig.map_all();
    CHECK(rig.release().no_room == false);
    CHECK(rig.bytes_on(0) == options.size);
}

TEST_CASE("migrator: two full volumes do not count on the same spill memory") {
    const RigOptions options = full_volume("h", "h");
    MovingRig rig(options);
    auto made = Volume::create(
        {.size = options.size, .page_size = options.page_size, .provision = Provision::full},
        {&rig.home()}, {}, {}, {{.device = rig.devices[1].get(), .budget = &rig.spill_budget}});
    rig.migrate({rig.volumes[0], std::move(std::get<std::unique_ptr<Volume>>(made))});
    rig.spill_budget.set_limit(2 * 64 * mib);  // two slabs, which each of them has
    const Migration out = rig.reclaim(all);
    CHECK(out.released == 2 * 64 * mib);
    CHECK(out.no_room);
    rig.release();
    rig.migrate({rig.volumes[0]});
}

TEST_CASE("migrator: prepare() opens the channels of all threads, or says why it cannot") {
    LatchDevice home(0, {});
    home.channels_left = 0;
    LatchDevice spill(1, {});
    SlabBudget budget;
    const std::shared_ptr<Volume> volume =
        checked(Volume::create({.size = 4 * mib, .page_size = 1 * mib}, {&home}, {}, {},
                               {{.device = &spill, .budget = &budget}}));
    Migrator migrator(
        home, [&] { return Migrator::Volumes{volume}; },
        {.channels = {.chunk_size = 64 * kib, .slots = 2, .pinned = 256 * kib}, .threads = 3});
    migrator.start();
    const auto prepare = [&] {
        std::promise<std::string> error;
        migrator.prepare([&](const Migration& out) { error.set_value(out.error); });
        return error.get_future().get();
    };
    CHECK(prepare() == "no channel is left");
    // A request that fails leaves the limit where the pages are.
    map_page(*volume, 0);
    std::promise<Migration> failed;
    migrator.reclaim(all, [&](Migration&& out) { failed.set_value(std::move(out)); });
    CHECK(failed.get_future().get().error == "no channel is left");
    CHECK(home.budget().used() != 0);
    CHECK(home.budget().limit() == home.budget().used());
    home.channels_left = 1'000;
    CHECK(prepare() == "");
    CHECK(home.channels_opened == 3);
}

TEST_CASE("migrator: a page that cannot be copied stays where it is") {
    MovingRig rig(options_of("s", "h"));
    write(rig, 0, 5000, 1);
    rig.script.copies_until_failure = 0;
    const Migration out = rig.reclaim(all);
    CHECK(out.failed == 1);
    CHECK(rig.migrator.totals().failed == 1);
    check_contents(rig);
    write(rig, 0, 4000, 2);  // no move is left that it would wait for
    rig.release();
    check_spill_is_empty(rig);
}

TEST_CASE("migrator: a page that is trimmed while it moves leaves no memory behind") {
    MovingRig rig(options_of("s", "h"));
    write(rig, 0, 5000, 1);
    rig.script.hold = true;
    std::promise<Migration> done;
    rig.migrator.reclaim(all, [&](Migration&& out) { done.set_value(std::move(out)); });
    while (!rig.volume->slot(0).load().is_moving()) std::this_thread::yield();
    rig.volume->unmap(0);
    rig.script.hold = false;
    const Migration out = done.get_future().get();
    CHECK(out.moved.empty());
    CHECK(out.failed == 0);
    CHECK(out.missing() == 0);
    check_spill_is_empty(rig);
}

TEST_CASE("migrator: pages in a file that cannot be written are still read, and return") {
    RigOptions options = options_of("s", "fh");
    options.spills_later = true;
    MovingRig rig(options);
    REQUIRE(rig.set_spills({1}) == "");
    write_pages(rig, 40, 100);
    CHECK(rig.reclaim(all).error.empty());
    REQUIRE(rig.bytes_on(0) == 0);
    {
        const NoWrites full;
        CHECK(Requests{rig, Random(1)}.write(0, 4096) == Status::io_error);
    }
    CHECK(rig.devices[1]->failed());
    check_contents(rig);
    CHECK(rig.release().error.empty());
    CHECK(rig.bytes_on(0) == rig.volume->mapped_bytes());
    check_contents(rig);
    // Nothing leaves the device again.
    CHECK(rig.reclaim(all).released == 0);
    // Other memory is used instead, though its slab, which a client still reads, has room.
    const PageRef read = rig.volume->find(0);
    rig.release();
    REQUIRE(rig.set_spills({1, 2}) == "");
    const Migration out = rig.reclaim(all);
    CHECK(out.failed == 0);
    CHECK(out.moved.at("memory:2") == rig.volume->mapped_bytes());
    check_contents(rig);
}

TEST_CASE("migrator: a page that is being written does not move; a read one does") {
    MovingRig rig(options_of("h", "h"));
    write(rig, 0, 5000, 1);
    write(rig, rig.options.page_size, 5000, 2);
    PageRef written = map_page(*rig.volume, 0);
    const PageRef read = rig.volume->find(1);
    const Migration out = rig.reclaim(all);
    CHECK(out.busy != 0);
    CHECK(rig.volume->slot(0).load().device() == 0);
    CHECK(rig.volume->slot(1).load().device() == 1);
    // The reader still sees the old page, which is not used for anything else.
    CHECK(std::memcmp(read.cpu(), rig.model.data() + rig.options.page_size, 5000) == 0);
    CHECK(rig.bytes_on(1) == rig.options.page_size);
    written.reset();
    CHECK(rig.reclaim(all).busy == 0);
    check_contents(rig);
    rig.release();
    check_spill_is_empty(rig);
}

TEST_CASE("page pool: a writer waits for the end of a move, and a trim does not") {
    MovingRig rig(options_of("h", "h"));
    write(rig, 0, 5000, 1);
    PagePool& home = rig.volume->pool(0);
    PagePool& spill = rig.volume->pool(1);
    for (const bool trimmed : {false, true}) {
        CAPTURE(trimmed);
        PageIndex target = 0;
        REQUIRE(spill.memory().take_target(target, {}) == Status::ok);
        PageRef source;
        const EntrySlot slot = rig.volume->slot(0);
        REQUIRE(home.begin_move(0, slot, source));
        CHECK_FALSE(rig.volume->find(0).hole());
        PageRef page;
        TestWaiter writer;
        REQUIRE_FALSE(writer.try_acquire(*rig.volume, 0, page).has_value());
        if (trimmed) {
            rig.volume->unmap(0);
            CHECK(rig.volume->find(0).hole());
            CHECK_FALSE(home.commit_move(0, source.index(), spill, target));
        } else {
            home.cancel_move(0, source.index());
        }
        spill.memory().put_back(target, PageAllocator::Purpose::fill);
        source.reset();
        REQUIRE(writer.acquire(*rig.volume, 0, page) == Status::ok);
        CHECK(&page.device() == &rig.home());
    }
}

TEST_CASE("page pool: a page that moves lacks the same parts afterwards") {
    MovingRig rig(options_of("h", "h"));
    PagePool& home = rig.volume->pool(0);
    PagePool& spill = rig.volume->pool(1);
    PageRef page;
    REQUIRE(rig.volume->take_page(0, page) == Status::ok);
    REQUIRE(rig.volume->fill_hole(0, page, 6));
    page.add_parts(2);
    page.reset();
    PageIndex target = 0;
    REQUIRE(spill.memory().take_target(target, {}) == Status::ok);
    PageRef source;
    REQUIRE(home.begin_move(0, rig.volume->slot(0), source));
    REQUIRE(home.commit_move(0, source.index(), spill, target));
    CHECK(&rig.volume->find(0).device() != &rig.home());
    CHECK(rig.volume->missing_parts(0) == 4);
}

TEST_CASE("page pool: a page that is trimmed while it moves can be written at once") {
    MovingRig rig(options_of("h", "h"));
    PagePool& home = rig.volume->pool(0);
    PagePool& spill = rig.volume->pool(1);
    PageRef page;
    for (std::uint64_t number = rig.pages(); number-- != 0;) {
        REQUIRE(rig.volume->map(number, page) == Status::ok);
    }
    REQUIRE(rig.reclaim(all).busy == 1);  // `page` is the first one
    page.reset();
    REQUIRE(home.memory().drain(0));
    PageIndex target = 0;
    REQUIRE(spill.memory().take_target(target, {}) ==
            Status::ok);  // the last page of the only slab
    PageRef source;
    REQUIRE(home.begin_move(0, rig.volume->slot(0), source));
    rig.volume->unmap(0);
    TestWaiter writer;
    CHECK(writer.acquire(*rig.volume, 0, page) == Status::ok);
    CHECK_FALSE(home.commit_move(0, source.index(), spill, target));
    spill.memory().put_back(target, PageAllocator::Purpose::fill);
}

TEST_CASE("migrator: a page that volumes share moves once and stays shared") {
    for (const char* const home : {"h", "s"}) {
        CAPTURE(home);
        MovingRig rig(options_of(home, "h"));
        Family family(rig);
        write_pages(rig, 20);
        REQUIRE(family.clone().empty());
        REQUIRE(family.clone().empty());
        write(rig, 1000, 5000, 7);
        rig.migrate({rig.volumes[0], family.unowned(0), family.unowned(1)});
        const std::uint64_t distinct = 21 * rig.options.page_size;
        Migration out = rig.reclaim(all);
        CHECK(out.error.empty());
        CHECK(out.busy == 0);
        CHECK(out.moved.at("memory:1") == distinct);
        CHECK(rig.home().budget().used() == 0);
        family.for_each([&] { check_contents(rig); });
        CHECK(rig.volume->contents().shared == 19 * rig.options.page_size);
        write(rig, 2 * rig.options.page_size, 5000, 8);
        out = rig.release();
        CHECK(out.error.empty());
        CHECK(rig.bytes_on(1) == 0);
        family.for_each([&] { check_contents(rig); });
        CHECK(rig.volume->contents().shared == 18 * rig.options.page_size);
        rig.migrate({rig.volumes[0]});
        family.remove(0);
        family.remove(0);
        CHECK(rig.volume->contents().shared == 0);
    }
}

TEST_CASE("migrator: pages that volumes share take memory once") {
    RigOptions options = large_pages("h", "h");
    options.size = 4 * options.page_size;  // a slab
    MovingRig rig(options, 1);
    Family family(rig);
    write_pages(rig, rig.pages());
    REQUIRE(family.clone().empty());
    rig.migrate({rig.volumes[0], family.unowned(0)});
    rig.spill_budget.set_limit(options.size);
    const Migration out = rig.reclaim(all);
    CHECK_FALSE(out.no_room);
    CHECK(out.moved.at("memory:1") == options.size);
    family.for_each([&] { check_contents(rig); });
    rig.migrate({rig.volumes[0]});
}

// Each page has one thread that writes it; all threads read it.
void move_below_clients(unsigned movers, bool spills_later = false) {
    constexpr std::uint32_t threads = 4;
    RigOptions options = options_of("h", "h");
    options.page_size = 64 * kib;
    options.size = 64 * options.page_size;
    options.spills_later = spills_later;
    MovingRig rig(options, movers);
    std::atomic<std::uint32_t> wrong{0};
    std::atomic<std::uint32_t> refused{0};
    std::atomic<bool> stop{false};
    const auto words = [](const PageRef& page) {
        return reinterpret_cast<std::uint64_t*>(page.cpu());
    };
    const std::uint64_t last = options.page_size / sizeof(std::uint64_t) - 1;
    std::vector<std::thread> clients;
    for (std::uint32_t thread = 0; thread != threads; ++thread) {
        clients.emplace_back([&, thread] {
            Random random(thread);
            std::vector<std::uint64_t> values(64);
            PageRef held;
            std::uint64_t held_page = 0;
            TestWaiter waiter;
            for (std::uint64_t round = 1; !stop; ++round) {
                const std::uint32_t page = random.below(64);
                const bool mine = page % threads == thread;
                PageRef ref;
                if (mine && random.one_in(2)) {
                    if (waiter.acquire(*rig.volume, page, ref) != Status::ok) {
                        ++refused;
                        continue;
                    }
                    values[page] = round << 8 | page;
                    for (const std::uint64_t at : {std::uint64_t{0}, last}) {
                        std::atomic_ref(words(ref)[at]).store(values[page]);
                    }
                } else if (mine && random.one_in(8)) {
                    rig.volume->unmap(page);
                    values[page] = 0;
                } else {
                    ref = rig.volume->find(page);
                    for (const std::uint64_t at : {std::uint64_t{0}, last}) {
                        const std::uint64_t seen =
                            ref.hole() ? 0 : std::atomic_ref(words(ref)[at]).load();
                        if (mine ? seen != values[page] : seen != 0 && (seen & 0xff) != page) {
                            ++wrong;
                        }
                    }
                    if (!mine && !ref.hole() && random.one_in(16)) {
                        held = std::move(ref);
                        held_page = page;
                    }
                }
                if (!held.hole()) {
                    const std::uint64_t seen = std::atomic_ref(words(held)[last]).load();
                    if (seen != 0 && (seen & 0xff) != held_page) ++wrong;
                }
                if (random.one_in(64)) held.reset();
            }
        });
    }
    std::uint64_t moved = 0;
    if (spills_later) REQUIRE(rig.set_spills({1}) == "");
    while (moved < 2000 * options.page_size) {
        const Migration out = rig.reclaim(all);
        for (const auto& [place, bytes] : out.moved) moved += bytes;
        rig.release();
    }
    stop = true;
    for (std::thread& client : clients) client.join();
    CHECK(wrong == 0);
    CHECK(refused == 0);
    for (std::uint64_t page = 0; page != rig.pages(); ++page) rig.volume->unmap(page);
    CHECK(rig.volume->mapped_bytes() == 0);
    CHECK(rig.volume->retired_bytes() == 0);
}

TEST_CASE("migrator: no write is lost and no page is reused too early, with many threads") {
    move_below_clients(1);
    move_below_clients(4);
    move_below_clients(4, true);
}

TEST_CASE("migrator: pages return up to a raised limit, those that were used last first") {
    RigOptions options = large_pages("h", "h");
    MovingRig rig(options, 1);  // several threads would race for the last memory
    rig.map_all();
    REQUIRE(rig.reclaim(all).released == 256 * mib);
    for (const std::uint64_t page : std::initializer_list<std::uint64_t>{3, 6, 9, 12})
        rig.volume->find(page);
    const Migration back = rig.release(64 * mib);
    CHECK(back.no_room);
    CHECK(rig.home().budget().used() == 64 * mib);
    CHECK(back.moved.at("memory:0") == 64 * mib);
    for (std::uint64_t page = 0; page != rig.pages(); ++page) {
        CAPTURE(page);
        const bool used = page == 3 || page == 6 || page == 9 || page == 12;
        CHECK(rig.volume->slot(page).load().device() == (used ? 0 : 1));
    }
    CHECK(rig.release().no_room == false);
    CHECK(rig.bytes_on(0) == 256 * mib);
}

TEST_CASE("migrator: pages return at a limited rate, and other requests do not wait for them") {
    MovingRig rig(options_of("h", "h"));
    write_pages(rig, 40);
    const std::uint64_t mapped = rig.volume->mapped_bytes();
    REQUIRE(rig.reclaim(all).no_room == false);
    rig.migrator.set_return_rate(1);  // the second page would have to wait for a day
    std::promise<Migration> released;
    rig.migrator.release([&](const Migration& out) { released.set_value(out); });
    while (rig.bytes_on(0) == 0) std::this_thread::yield();
    CHECK(rig.reclaim(all).error.empty());
    const Migration back = released.get_future().get();
    CHECK(back.cut_short);
    CHECK(back.moved.at("memory:0") == rig.options.page_size);
    CHECK(rig.bytes_on(0) == 0);
    const Migrator::Totals totals = rig.migrator.totals();
    CHECK(totals.reclaims == 2);
    CHECK(totals.releases == 1);
    CHECK(totals.moved_out == mapped + rig.options.page_size);
    CHECK(totals.moved_back == rig.options.page_size);
    CHECK(totals.last_reclaim_end.time_since_epoch().count() != 0);
    check_contents(rig);
}

}  // namespace
}  // namespace gpunbd::storage::test
