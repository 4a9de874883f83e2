#include "storage/pages/page_pool.hpp"

#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/storage/test_pool.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

std::byte* memory_of(const PagePool& pool, PageIndex page) {
    return pool.memory().slabs().cpu_of(page);
}

// Waits for a condition that another thread establishes.
bool comes_true(const auto& condition) {
    for (int i = 0; i != 10000 && !condition(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
}

TEST_CASE("page pool: memory that is too small for a slab is used by smaller ones") {
    constexpr std::uint64_t page_size = 2 * mib;
    constexpr std::uint64_t pages_of_device = 42;  // a slab has 32
    MemoryDevice device(0, {.capacity = pages_of_device * page_size});
    TestPool pool(device, page_size, 100, Provision::thin);
    std::set<PageIndex> pages;
    PageIndex page = 0;
    while (pool.take(page) == Status::ok) REQUIRE(pages.insert(page).second);
    CHECK(pages.size() == 40);  // what is left has fewer pages than the smallest slab
    for (const PageIndex each : pages) retire(pool, each);
}

TEST_CASE("page pool: a pinned page can be mapped again at its former page number") {
    constexpr std::uint64_t page_size = 64 * kib;
    for (const bool discards : {true, false}) {
        MemoryDevice device(0, {.capacity = 2 * page_size, .discards = discards});
        TestPool pool(device, page_size, 2, Provision::thin);
        std::uint64_t words[3] = {};
        const EntrySlot seven(words[0]);
        const EntrySlot eight(words[1]);
        const EntrySlot nine(words[2]);
        PageRef held;
        PageRef other;
        REQUIRE(pool.map(8, eight, other) == Status::ok);
        REQUIRE(pool.map(7, seven, held) == Status::ok);
        const PageIndex page = seven.load().page();
        CHECK(seven.load() == PageEntry::mapped(0, page));
        CHECK(pool.memory().pages().mapped_pages() == 2);
        stamp(memory_of(pool, page), page_size, 1);
        pool.unmap(7, seven);
        CHECK(seven.load() == PageEntry::retired(0, page));
        CHECK(pool.memory().usage().retired == page_size);
        CHECK(pool.memory().pages().mapped_pages() == 1);
        CHECK(holds(memory_of(pool, page), page_size, 1));
        // The retired page has to be cleared first, and no other number gets it.
        CHECK_FALSE(pool.map_at_once(7, seven, other));
        CHECK_FALSE(pool.map_at_once(9, nine, other));
        CHECK(pool.map(9, nine, other) == Status::no_space);
        CHECK(pool.map(7, seven, other) == Status::ok);
        CHECK(seven.load() == PageEntry::mapped(0, page));
        CHECK(pool.memory().usage().retired == 0);
        CHECK(holds(memory_of(pool, page), page_size, 0));
        // Dropping the pin does not free the page; retiring it again does.
        held.reset();
        other.reset();
        CHECK(pool.map(9, nine, other) == Status::no_space);
        stamp(memory_of(pool, page), page_size, 2);
        pool.unmap(7, seven);
        CHECK(pool.memory().usage().retired == 0);
        REQUIRE(pool.map(9, nine, held) == Status::ok);
        CHECK(nine.load() == PageEntry::mapped(0, page));
        CHECK(holds(memory_of(pool, page), page_size, 0));
        // Another page number has got the former page.
        CHECK(pool.map(7, seven, other) == Status::no_space);
        // A page that cannot be cleared stays retired and pinned.
        pool.unmap(9, nine);
        device.clears_fail = true;
        CHECK(pool.map(9, nine, other) == Status::io_error);
        CHECK(nine.load() == PageEntry::retired(0, page));
        CHECK(pool.memory().usage().retired == page_size);
        held.reset();
        CHECK(pool.memory().usage().retired == 0);
        device.clears_fail = false;
        pool.unmap(8, eight);
    }
}

TEST_CASE("page pool: a page is cleared at most once, and only if it was written") {
    for (const bool discards : {true, false}) {
        MemoryDevice device(0, {.discards = discards});
        TestPool pool(device, 64 * kib, 8, Provision::thin);
        PageIndex page = 0;
        REQUIRE(pool.take(page) == Status::ok);
        CHECK(device.clears == 0);
        retire(pool, page);
        // Clear pages are preferred.
        for (int i = 0; i != 7; ++i) REQUIRE(pool.take(page) == Status::ok);
        CHECK(device.clears == 0);
        REQUIRE(pool.take(page) == Status::ok);
        CHECK(device.clears == (discards ? 0 : 1));
        for (PageIndex each = 0; each != 8; ++each) retire(pool, each);
    }
}

TEST_CASE("page pool: a page that cannot be cleared is neither handed out nor lost") {
    for (const bool slow : {false, true}) {  // a provisioner tries first
        MemoryDevice device(0, {.capacity = 2 * mib, .discards = false, .slow = slow});
        TestPool pool(device, 2 * mib, 1, Provision::thin);
        PageIndex page = 0;
        REQUIRE(pool.take(page) == Status::ok);
        stamp(memory_of(pool, page), 2 * mib, 1);
        device.clears_fail = true;
        retire(pool, page);
        if (slow) CHECK(comes_true([&] { return device.clears == 1; }));
        CHECK(pool.take(page) == Status::io_error);
        CHECK(pool.take(page) == Status::io_error);
        device.clears_fail = false;
        REQUIRE(pool.take(page) == Status::ok);
        CHECK(holds(memory_of(pool, page), 2 * mib, 0));
        retire(pool, page);
    }
}

TEST_CASE("page pool: repeatedly mapping and unmapping a page does not allocate each time") {
    MemoryDevice device(0, {});
    TestPool pool(device, 64 * mib, 4, Provision::thin);
    PageIndex page = 0;
    REQUIRE(pool.take(page) == Status::ok);
    const std::byte* const first = memory_of(pool, page);
    for (int i = 0; i != 10; ++i) {
        retire(pool, page);
        REQUIRE(device.slabs() == 1);
        REQUIRE(pool.take(page) == Status::ok);
        REQUIRE(memory_of(pool, page) == first);
    }
    retire(pool, page);
}

TEST_CASE("page pool: a provisioner allocates ahead of need, but not more than the export's size") {
    MemoryDevice device(0, {.slow = true});
    {
        TestPool pool(device, 2 * mib, 40, Provision::thin);  // a slab of 32 pages, and one of 8
        std::vector<PageIndex> pages(40);
        for (int i = 0; i != 17; ++i) REQUIRE(pool.take(pages[i]) == Status::ok);
        CHECK(comes_true([&] { return pool.memory().usage().allocated == 40 * 2 * mib; }));
        for (int i = 17; i != 40; ++i) REQUIRE(pool.take(pages[i]) == Status::ok);
        CHECK(pool.memory().usage().allocated == 40 * 2 * mib);
        CHECK(device.used() == 40 * 2 * mib);
        for (const PageIndex page : pages) retire(pool, page);
    }
    CHECK(device.used() == 0);
}

TEST_CASE("page pool: a provisioner clears freed pages") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        MemoryDevice device(0, {.discards = false, .slow = true});
        TestPool pool(device, 2 * mib, 32, provision);
        if (provision == Provision::full) REQUIRE(pool.memory().fill() == Status::ok);
        std::vector<PageIndex> pages(32);
        for (PageIndex& page : pages) REQUIRE(pool.take(page) == Status::ok);
        for (int i = 0; i != 10; ++i) {
            stamp(memory_of(pool, pages[i]), 2 * mib, 1);
            retire(pool, pages[i]);
        }
        CHECK(comes_true([&] { return device.clears == 10; }));
        for (int i = 0; i != 10; ++i) {
            REQUIRE(pool.take(pages[i]) == Status::ok);
            CHECK(holds(memory_of(pool, pages[i]), 2 * mib, 0));
        }
        CHECK(device.clears == 10);
        for (const PageIndex page : pages) retire(pool, page);
    }
}

// Other pools would wait for it in vain.
TEST_CASE("page pool: a quiesced pool announces no release of a slab") {
    constexpr std::uint64_t page_size = 2 * mib;
    constexpr PageIndex pages = 96;  // three slabs
    for (const bool resumes : {true, false}) {
        CAPTURE(resumes);
        LatchDevice device(0, {.capacity = pages * page_size, .discards = false, .slow = true});
        TestPool other(device, page_size, 1, Provision::thin);
        TestPool pool(device, page_size, pages, Provision::thin);
        PageIndex page = 0;
        for (PageIndex i = 0; i != pages; ++i) REQUIRE(pool.take(page) == Status::ok);
        // The provisioner clears a page, and so does not release a slab yet.
        device.clearing.close();
        retire(pool, 0);
        device.clearing.wait_for_one();
        for (PageIndex each = 1; each != pages; ++each) retire(pool, each);
        CHECK(device.releases().pending());
        std::thread quiescing([&] { pool.quiesce(); });
        CHECK(comes_true([&] { return !device.releases().pending(); }));
        device.clearing.open();
        quiescing.join();
        REQUIRE_FALSE(device.releases().pending());
        CHECK(other.take(page) == Status::no_space);
        CHECK(device.memory.slabs() == 3);
        if (!resumes) continue;
        pool.memory().resume();
        CHECK(comes_true([&] { return device.memory.slabs() == 1; }));
    }
}

// A process that takes the slabs over meanwhile would not get it.
TEST_CASE("page pool: a quiesced pool makes no slab for a page that moves") {
    MemoryDevice device(0, {});
    TestPool pool(device, 64 * kib, 8, Provision::thin);
    pool.quiesce();
    PageIndex page = 0;
    CHECK(pool.memory().take_target(page, std::nullopt) == Status::no_space);
    CHECK(pool.memory().take_target(page, SlabKind::fixed) == Status::no_space);
    CHECK(device.slabs() == 0);
    pool.memory().resume();
    REQUIRE(pool.memory().take_target(page, std::nullopt) == Status::ok);
    pool.memory().put_back(page, PageAllocator::Purpose::fill);
}

TEST_CASE("page pool: a retired page is not reused while it is pinned") {
    constexpr std::uint64_t page_size = 64 * kib;
    MemoryDevice device(0, {.capacity = page_size, .discards = false});
    TestPool pool(device, page_size, 1, Provision::thin);
    PageIndex page = 0;
    REQUIRE(pool.take(page) == Status::ok);
    stamp(memory_of(pool, page), page_size, 1);
    PageIndex other = 0;
    pool.memory().pin(page, Access::read);
    retire(pool, page);
    CHECK(pool.take(other) == Status::no_space);
    // Pinned by one thread and unpinned by another, so that both counts are needed.
    std::thread([&] { pool.memory().pin(page, Access::read); }).join();
    std::thread([&] { pool.memory().unpin(page, Access::read); }).join();
    CHECK(pool.take(other) == Status::no_space);
    CHECK(holds(memory_of(pool, page), page_size, 1));
    std::thread([&] { pool.memory().unpin(page, Access::read); }).join();
    REQUIRE(pool.take(other) == Status::ok);
    CHECK(holds(memory_of(pool, page), page_size, 0));
    // A late pin has no effect, and unpinning it does not free the page of its new owner.
    pool.memory().pin(page, Access::read);
    pool.memory().unpin(page, Access::read);
    CHECK(pool.take(other) == Status::no_space);
    // If the owner retires the page in between, the last unpin frees it once.
    pool.memory().pin(page, Access::read);
    retire(pool, page);
    CHECK(pool.take(other) == Status::no_space);
    pool.memory().unpin(page, Access::read);
    REQUIRE(pool.take(other) == Status::ok);
    CHECK(pool.take(page) == Status::no_space);
    retire(pool, other);
}

TEST_CASE("page reference: moves, resets, and releases its pin once") {
    constexpr std::uint64_t page_size = 64 * kib;
    MemoryDevice devices[2] = {{0, {.capacity = page_size}}, {1, {.capacity = page_size}}};
    TestPool first(devices[0], page_size, 1, Provision::thin);
    TestPool second(devices[1], page_size, 1, Provision::thin);
    // Returns true if only a reference pins the page.
    const auto held = [](TestPool& pool) {
        PageIndex page = 0;
        REQUIRE(pool.take(page) == Status::ok);
        pool.memory().pin(page, Access::read);
        retire(pool, page);
        return PageRef(pool.memory(), page, Access::read);
    };
    const auto is_free = [](TestPool& pool) {
        PageIndex page = 0;
        const bool taken = pool.take(page) == Status::ok;
        if (taken) retire(pool, page);
        return taken;
    };
    PageRef a = held(first);
    CHECK_FALSE(a.hole());
    CHECK(a.cpu() == memory_of(first, 0));
    CHECK(a.address() == first.memory().slabs().address_of(0));
    CHECK(&a.device() == &devices[0]);
    PageRef b(std::move(a));
    CHECK(a.hole());  // NOLINT(bugprone-use-after-move): the contract says that it is a hole
    CHECK(b.cpu() == memory_of(first, 0));
    CHECK_FALSE(is_free(first));
    b = held(second);
    CHECK(is_free(first));
    PageRef& same = b;
    b = std::move(same);
    CHECK(b.cpu() == memory_of(second, 0));
    CHECK_FALSE(is_free(second));
    second.memory().pin(0, Access::read);
    b.reset();
    b.reset();
    CHECK(b.hole());
    CHECK_FALSE(is_free(second));  // one of two pins is left
    second.memory().unpin(0, Access::read);
    CHECK(is_free(second));
}

}  // namespace
}  // namespace gpunbd::storage::test
