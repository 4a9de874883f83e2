// Volume::acquire does not block, and the page pool stays usable while it waits.
#include "storage/pages/volume.hpp"
#include "tests/storage/no_threads.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/pages/page_waiter.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t whole_slab =
    64 * mib;  // used as the page size, so that each page is allocated

std::unique_ptr<Volume> volume_on(Device& device, std::uint64_t page_size, std::uint64_t pages) {
    return checked(Volume::create({.size = pages * page_size, .page_size = page_size}, {&device}));
}

// Page 0 is mapped, and page 1 is being allocated.
struct WhileAllocating {
    LatchDevice device{0, {}};
    std::unique_ptr<Volume> volume = volume_on(device, whole_slab, 3);
    TestWaiter waiter;
    PageRef page;

    WhileAllocating() {
        write_word(*volume, 0, 7);
        device.allocating.close();
        REQUIRE_FALSE(waiter.try_acquire(*volume, 1, page).has_value());
        device.allocating.wait_for_one();
        CHECK(waiter.in_progress());
        CHECK(page.hole());
        CHECK_FALSE(volume->mapped(1));
    }
};

TEST_CASE("acquire: other pages of a volume can be mapped and unmapped during an allocation") {
    WhileAllocating at;
    PageRef other = at.volume->find(0);
    CHECK_FALSE(other.hole());
    other.reset();
    at.volume->unmap(0);
    CHECK_FALSE(at.volume->mapped(0));
    // This page is free and clear.
    TestWaiter another;
    REQUIRE(another.try_acquire(*at.volume, 2, other) == Status::ok);
    CHECK(word_of(other) == 0);
    CHECK(at.waiter.in_progress());
    at.device.allocating.open();
    REQUIRE(at.waiter.answer() == Status::ok);
    CHECK_FALSE(at.waiter.in_progress());
    REQUIRE(at.waiter.try_acquire(*at.volume, 1, at.page) == Status::ok);
    CHECK(word_of(at.page) == 0);
    CHECK(at.page.address() != other.address());
}

TEST_CASE("acquire: other pages of a volume can be mapped and unmapped while one is cleared") {
    constexpr std::uint64_t page_size = 64 * kib;
    LatchDevice device(0, {.discards = false});
    const auto volume = volume_on(device, page_size, 4);
    for (const std::uint64_t page : {0, 1, 2}) write_word(*volume, page, 7);
    volume->unmap(0);
    device.clearing.close();
    PageRef clear;
    TestWaiter waiter;
    REQUIRE(waiter.try_acquire(*volume, 0, clear) == Status::ok);  // page 0 has never been mapped
    PageRef page;
    REQUIRE_FALSE(waiter.try_acquire(*volume, 3, page).has_value());
    device.clearing.wait_for_one();
    CHECK_FALSE(volume->find(1).hole());
    volume->unmap(1);
    CHECK(volume->find(1).hole());
    TestWaiter another;
    PageRef other;
    REQUIRE_FALSE(another.try_acquire(*volume, 1, other).has_value());
    CHECK(waiter.in_progress());
    device.clearing.open();
    REQUIRE(waiter.acquire(*volume, 3, page) == Status::ok);
    REQUIRE(another.answer() == Status::ok);
    REQUIRE(another.acquire(*volume, 1, other) == Status::ok);
    CHECK(word_of(page) == 0);
    CHECK(word_of(other) == 0);
    CHECK(page.address() != other.address());
}

TEST_CASE("acquire: concurrent requests for one page get the same page") {
    WhileAllocating at;
    TestWaiter others[3];
    PageRef pages[3];
    for (std::size_t i = 0; i != 3; ++i) {
        REQUIRE_FALSE(others[i].try_acquire(*at.volume, 1, pages[i]).has_value());
    }
    at.device.allocating.open();
    REQUIRE(at.waiter.acquire(*at.volume, 1, at.page) == Status::ok);
    for (std::size_t i = 0; i != 3; ++i) {
        REQUIRE(others[i].answer() == Status::ok);
        REQUIRE(others[i].acquire(*at.volume, 1, pages[i]) == Status::ok);
        CHECK(pages[i].address() == at.page.address());
    }
    CHECK(at.volume->mapped_bytes() == 2 * whole_slab);
    CHECK(at.device.memory.slabs() == 2);
}

TEST_CASE("acquire: quiesce() waits for a slab that is being allocated") {
    WhileAllocating at;
    std::atomic<bool> quiesced{false};
    std::thread quiescing([&] {
        at.volume->quiesce();
        quiesced = true;
    });
    for (int i = 0; i != 50 && !quiesced; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // gives errors time to show
    }
    CHECK(at.device.memory.slabs() == 1);
    CHECK_FALSE(quiesced);
    at.device.allocating.open();
    quiescing.join();
    CHECK(at.device.memory.slabs() == 2);
    CHECK(at.waiter.acquire(*at.volume, 1, at.page) == Status::ok);

    // A new request waits until resume().
    PageRef page;
    TestWaiter waiter;
    REQUIRE_FALSE(waiter.try_acquire(*at.volume, 2, page).has_value());
    at.volume->quiesce();
    CHECK(waiter.in_progress());
    CHECK(at.device.memory.slabs() == 2);
    at.volume->resume();
    CHECK(waiter.acquire(*at.volume, 2, page) == Status::ok);
}

TEST_CASE("acquire: a slab allocated when another becomes empty causes no release") {
    LatchDevice device(0, {.slow = true});
    const auto volume = volume_on(device, whole_slab, 3);
    volume->quiesce();  // so that no slab is allocated ahead
    write_word(*volume, 0, 7);
    device.allocating.close();
    std::thread client([&] { write_word(*volume, 1, 7); });
    device.allocating.wait_for_one();
    volume->unmap(0);
    device.allocating.open();
    client.join();
    volume->unmap(1);
    volume->resume();
    while (device.memory.slabs() != 1) std::this_thread::yield();
}

// Without a provisioner, other threads release slabs, which another pool could need.
TEST_CASE("acquire: without threads empty slabs are released, but not while quiesced") {
    LatchDevice device(0, {.slow = true});
    const NoThreads none;
    const auto volume = volume_on(device, whole_slab, 3);
    for (const bool quiesced : {false, true}) {
        for (const std::uint64_t page : {0, 1, 2}) write_word(*volume, page, 7);
        if (quiesced) volume->quiesce();
        for (const std::uint64_t page : {0, 1, 2}) volume->unmap(page);
        CHECK(device.memory.slabs() == (quiesced ? 3 : 1));
        if (quiesced) volume->resume();
        CHECK(device.memory.slabs() == 1);
        CHECK_FALSE(device.releases().pending());
    }
}

TEST_CASE("acquire: a volume is destroyed after pending requests have completed") {
    WhileAllocating at;
    std::thread end([&] { at.volume.reset(); });
    at.device.allocating.open();
    end.join();
    CHECK(at.waiter.answer() == Status::ok);
    CHECK(at.device.memory.slabs() == 0);
}

TEST_CASE("acquire: a slab that is drained while another cannot be allocated is released") {
    LatchDevice device(0, {.slow = true});
    const auto volume = volume_on(device, whole_slab, 2);
    volume->quiesce();  // so that no slab is allocated ahead
    write_word(*volume, 0, 7);
    device.memory.set_capacity(whole_slab);
    device.allocating.close();
    TestWaiter waiter;
    PageRef page;
    REQUIRE_FALSE(waiter.try_acquire(*volume, 1, page).has_value());
    volume->resume();
    device.allocating.wait_for_one();
    REQUIRE(volume->pool(0).memory().drain(0));
    volume->unmap(0);
    CHECK(device.releases().pending());
    device.allocating.open();
    CHECK(waiter.answer() == Status::no_space);
    while (device.releases().pending()) std::this_thread::yield();
}

TEST_CASE("acquire: a page that is freed during an allocation is used instead of a slab") {
    WhileAllocating at;
    at.device.memory.set_capacity(whole_slab);
    at.volume->unmap(0);
    at.device.allocating.open();
    REQUIRE(at.waiter.acquire(*at.volume, 1, at.page) == Status::ok);
    CHECK(word_of(at.page) == 0);
    CHECK(at.device.memory.slabs() == 1);
}

TEST_CASE("acquire: a page that is still pinned is cleared in another thread") {
    LatchDevice device(0, {});
    const auto volume = volume_on(device, whole_slab, 1);
    write_word(*volume, 0, 7);
    PageRef held = volume->find(0);
    volume->unmap(0);
    device.clearing.close();
    TestWaiter waiter;
    PageRef page;
    REQUIRE_FALSE(waiter.try_acquire(*volume, 0, page).has_value());
    device.clearing.wait_for_one();
    CHECK(volume->find(0).hole());
    held.reset();  // the page is still reserved for its page number
    device.clearing.open();
    REQUIRE(waiter.acquire(*volume, 0, page) == Status::ok);
    CHECK(word_of(page) == 0);
    CHECK(volume->retired_bytes() == 0);
    CHECK(volume->mapped_bytes() == whole_slab);
}

TEST_CASE("acquire: fails while no thread can be started, and succeeds later") {
    LatchDevice device(0, {});
    const auto volume = volume_on(device, whole_slab, 2);
    TestWaiter waiter;
    PageRef page;
    {
        const NoThreads none;
        REQUIRE_FALSE(waiter.try_acquire(*volume, 0, page).has_value());
        CHECK(waiter.answer() == Status::no_space);
        CHECK(device.memory.slabs() == 0);
    }
    CHECK(waiter.acquire(*volume, 0, page) == Status::ok);
}

// Each volume keeps one slab, and the third moves between them.
TEST_CASE("threads: memory freed by one volume is available to another, without a refusal") {
    for (const bool slow : {false, true}) {
        CAPTURE(slow);
        LatchDevice device(0, {.slow = slow});
        std::unique_ptr<Volume> volumes[] = {volume_on(device, whole_slab, 2),
                                             volume_on(device, whole_slab, 2)};
        device.memory.set_capacity(3 * whole_slab);
        TestWaiter waiter;
        for (std::uint32_t round = 0; round != 500; ++round) {
            CAPTURE(round);
            Volume& volume = *volumes[round % 2];
            for (const std::uint64_t page : {0, 1}) {
                PageRef ref;
                const Status status =
                    round % 3 == 0 ? volume.map(page, ref) : waiter.acquire(volume, page, ref);
                REQUIRE(status == Status::ok);
                REQUIRE(word_of(ref) == 0);
                word_of(ref) = 7;
            }
            for (const std::uint64_t page : {0, 1}) volume.unmap(page);
        }
    }
}

// A pending release ends after the device has refused memory and before the caller is notified.
class LateRefusal : public LatchDevice {
 public:
    using LatchDevice::LatchDevice;
    Status allocate(const SlabRequest& request, Slab& out) override {
        const Status status = LatchDevice::allocate(request, out);
        if (status == Status::no_space && releases_late) {
            releasing.open();
            while (releases().pending()) std::this_thread::yield();
        }
        return status;
    }
    bool releases_late = false;
};

TEST_CASE("acquire: waits for a release in progress, and uses one that ends during the refusal") {
    for (const bool late : {false, true}) {
        LateRefusal device(0, {.slow = true});
        device.releases_late = late;
        const auto gives = volume_on(device, whole_slab, 2);
        const auto wants = volume_on(device, whole_slab, 1);
        for (const std::uint64_t page : {0, 1}) write_word(*gives, page, 7);
        device.memory.set_capacity(2 * whole_slab);
        device.releasing.close();
        for (const std::uint64_t page : {0, 1}) gives->unmap(page);
        device.releasing.wait_for_one();
        TestWaiter waiter;
        PageRef page;
        if (!late) {
            REQUIRE_FALSE(waiter.try_acquire(*wants, 0, page).has_value());
            CHECK(waiter.in_progress());
            device.releasing.open();
        }
        CHECK(waiter.acquire(*wants, 0, page) == Status::ok);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
