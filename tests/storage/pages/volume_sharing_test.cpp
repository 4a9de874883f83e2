// Volumes that share pages.
#include "storage/pages/volume.hpp"
#include "tests/storage/migration/moving_rig.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/pages/page_waiter.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t page_size = 64 * kib;

std::unique_ptr<Volume> create(Device& device, std::uint64_t pages,
                               Provision provision = Provision::thin) {
    return checked(Volume::create(
        {.size = pages * page_size, .page_size = page_size, .provision = provision}, {&device}));
}

std::unique_ptr<Volume> clone_of(Volume& volume) { return checked(volume.clone("clone")); }

// The pools have more pages than one volume could map.
TEST_CASE("clone: it may be larger than its source, not smaller, and ends with holes") {
    MemoryDevice device(0, {});
    auto source = create(device, 3);
    write_word(*source, 2, 12);
    CHECK(contains(failure_of(source->clone("smaller", 2 * page_size)), "less than"));
    auto clone = checked(source->clone("larger", 600 * page_size));
    CHECK(clone->size() == 600 * page_size);
    CHECK(clone->shape().name == "larger");
    CHECK(clone->shape().instance != source->shape().instance);
    CHECK(source->size() == 3 * page_size);
    for (std::uint64_t page = 0; page != 600; ++page) {
        CHECK(read_word(*clone, page) == (page == 2 ? 12 : 0));
    }
    CHECK(clone->changed_run_at(*source, 0, clone->size()).length == clone->size());
    for (std::uint64_t page = 0; page != 600; ++page) write_word(*clone, page, page + 100);
    CHECK(read_word(*source, 2) == 12);
    const Volume::Run same = clone->changed_run_at(*source, 3 * page_size, 597 * page_size);
    CHECK(same.device == 1);
    CHECK(same.length == 597 * page_size);
    PagePool& pool = clone->pool(0);
    PageRef moving;
    CHECK(pool.begin_move(599, clone->slot(599), moving));
    pool.cancel_move(599, moving.index());
    moving.reset();
    write_word(*clone, 599, 1);
    source.reset();
    CHECK(read_word(*clone, 599) == 1);
    CHECK(clone->mapped_bytes() == 600 * page_size);
    clone.reset();
    CHECK(device.used() == 0);
}

TEST_CASE("clone: many clones write all of their pages") {
    constexpr std::uint64_t pages = 5;  // less than a slab
    constexpr std::uint64_t clones = 30;
    MemoryDevice device(0, {});
    auto source = create(device, pages);
    for (std::uint64_t page = 0; page != pages; ++page) write_word(*source, page, page + 1);
    std::vector<std::unique_ptr<Volume>> all;
    for (std::uint64_t i = 0; i != clones; ++i) all.push_back(clone_of(*source));
    CHECK(source->pool(0).memory().pages().mapped_pages() == pages);
    for (std::uint64_t i = 0; i != clones; ++i) {
        for (std::uint64_t page = 0; page != pages; ++page)
            write_word(*all[i], page, 100 * i + page);
    }
    CHECK(source->contents().shared == 0);
    for (std::uint64_t i = 0; i != clones; ++i) {
        for (std::uint64_t page = 0; page != pages; ++page) {
            REQUIRE(read_word(*all[i], page) == 100 * i + page);
        }
    }
    for (std::uint64_t page = 0; page != pages; ++page) CHECK(read_word(*source, page) == page + 1);
    CHECK(source->allocated_bytes() == device.used());
    CHECK(all.back()->allocated_bytes() == 0);
    all.clear();
    CHECK(device.used() <= 3 * 8 * page_size);  // one slab in use, one spare
    CHECK(source->mapped_bytes() == pages * page_size);
}

TEST_CASE("clone: changed pages are those that were written or trimmed since") {
    MemoryDevice device(0, {});
    auto volume = create(device, 8);
    for (std::uint64_t page = 0; page != 4; ++page) write_word(*volume, page, page + 1);
    const auto snapshot = clone_of(*volume);
    CHECK(volume->changed_run_at(*snapshot, 0, 8 * page_size).length == 8 * page_size);
    write_word(*volume, 1, 7);
    volume->unmap(2);
    write_word(*volume, 6, 7);
    std::vector<std::uint32_t> changed;
    for (std::uint64_t at = 0; at != 8 * page_size;) {
        const Volume::Run run = volume->changed_run_at(*snapshot, at, 8 * page_size - at);
        for (std::uint64_t i = 0; i != run.length / page_size; ++i) changed.push_back(run.device);
        at += run.length;
    }
    CHECK(changed == std::vector<std::uint32_t>{0, 1, 1, 0, 0, 0, 1, 0});
    CHECK(volume->changed_run_at(*snapshot, page_size + 5, 10).length == 10);
    CHECK(volume->changed_run_at(*snapshot, page_size + 5, 10).device == 1);
}

TEST_CASE("clone: without memory for a page that is being written it fails, and nothing changes") {
    MemoryDevice device(0, {.capacity = 2 * page_size});
    auto source = create(device, 2);
    PageRef written = map_page(*source, 0);
    write_word(*source, 1, 11);
    CHECK(failure_of(source->clone("clone")) ==
          "there is no memory for copies of the pages that clients use");
    word_of(written) = 1;
    written.reset();
    write_word(*source, 1, 12);
    write_word(*source, 0, 2);
    CHECK(device.copies == 0);
    CHECK(read_word(*source, 0) == 2);
    CHECK(read_word(*source, 1) == 12);
    CHECK(source->contents().shared == 0);
}

TEST_CASE("clone: a fully provisioned volume and its clones find memory for every write") {
    MemoryDevice device(0, {.capacity = 8 * page_size, .discards = false});
    auto source = create(device, 4, Provision::full);
    write_word(*source, 0, 1);
    clone_of(*source).reset();
    CHECK(device.used() == 4 * page_size);
    auto clone = clone_of(*source);
    CHECK(device.used() == 8 * page_size);
    CHECK(failure_of(source->clone("clone")) ==
          "memory:0 has no memory for as many pages again, which provision: full needs");
    for (std::uint64_t page = 0; page != 4; ++page) {
        write_word(*source, page, page + 10);
        write_word(*clone, page, page + 20);
    }
    clone.reset();
    for (std::uint64_t page = 0; page != 4; ++page) CHECK(read_word(*source, page) == page + 10);
}

TEST_CASE("clone: contents are kept with those of the source, or not at all") {
    MemoryDevice device(0, {});
    const auto store = std::make_shared<FakeParts>();
    const auto kept = checked(Volume::create({.size = page_size, .page_size = page_size}, {&device},
                                             {}, {.name = "kept", .kept_parts = store}));
    CHECK(failure_of(kept->clone("clone")) ==
          "its contents are kept, so those of a clone have to be kept");
    CHECK(failure_of(create(device, 1)->clone(KeepOptions{.name = "clone", .kept_parts = store})) ==
          "its contents are not kept, so those of a clone cannot be kept");
}

// Pages 0 and 1 of `source` are shared, and page 0 is being copied for a write.
struct WhileCopying {
    LatchDevice device{0, {}};
    std::unique_ptr<Volume> source = create(device, 4);
    std::unique_ptr<Volume> clone;
    TestWaiter waiter;
    PageRef page;

    WhileCopying() {
        for (const std::uint64_t each : {0, 1}) write_word(*source, each, 1);
        clone = clone_of(*source);
        device.copying.close();
        REQUIRE_FALSE(waiter.try_acquire(*source, 0, page).has_value());
        device.copying.wait_for_one();
    }
};

// A worker does not wait for the device, nor for other pages.
TEST_CASE("clone: a write to a shared page waits for its copy without blocking") {
    WhileCopying at;
    auto& [device, source, clone, waiter, page] = at;
    CHECK(read_word(*source, 0) == 1);
    TestWaiter other;
    PageRef hole;
    REQUIRE(other.try_acquire(*source, 2, hole) == Status::ok);  // a free page of the slab
    source->unmap(1);
    CHECK_FALSE(source->mapped(1));
    CHECK(waiter.in_progress());
    device.copying.open();
    REQUIRE(waiter.acquire(*source, 0, page) == Status::ok);
    word_of(page) = 3;
    CHECK(read_word(*clone, 0) == 1);
    CHECK(read_word(*source, 0) == 3);
}

TEST_CASE("clone: a copy does not become old when another page becomes writable in place") {
    WhileCopying at;
    auto& [device, source, clone, waiter, page] = at;
    const int copies_before = device.copying.passed();
    clone->unmap(1);
    write_word(*source, 1, 2);
    device.copying.open();
    REQUIRE(waiter.acquire(*source, 0, page) == Status::ok);
    CHECK(device.copying.passed() == copies_before + 1);
    CHECK(word_of(page) == 1);
}

TEST_CASE("clone: a page that replaces a shared one stays when a trimmed page is mapped again") {
    LatchDevice device(0, {});
    const auto source = create(device, 4);
    write_word(*source, 0, 1);
    auto clone = clone_of(*source);
    PageRef replacement = source->take_replacement(0);
    REQUIRE_FALSE(replacement.hole());
    word_of(replacement) = 2;
    clone.reset();
    PageRef reader = source->find(0);
    source->unmap(0);
    device.clearing.close();
    TestWaiter waiter;
    PageRef written;
    REQUIRE_FALSE(waiter.try_acquire(*source, 0, written).has_value());
    device.clearing.wait_for_one();
    CHECK(source->replace(0, replacement));
    device.clearing.open();
    REQUIRE(waiter.acquire(*source, 0, written) == Status::ok);
    CHECK(written.address() == replacement.address());
    CHECK(read_word(*source, 0) == 2);
    CHECK(source->mapped_bytes() == page_size);
    reader.reset();
    CHECK(source->retired_bytes() == 0);
}

// A writer that makes one change after another: change n gives the page n % pages the value n. It
// overwrites the page or replaces it, and now and then trims it first.
class Writer {
 public:
    static constexpr std::uint32_t pages = 12;  // of each writer
    Writer(std::uint32_t number, Volume& volume) : number_(number), volume_(volume) {}

    // The calling thread makes changes until `stop` is set.
    void run(const std::atomic<bool>& stop) {
        TestWaiter waiter;
        Random random(number_);
        for (std::uint64_t change = 1; !stop; ++change) {
            begun_ = change;
            const std::uint64_t page = page_of(change % pages);
            if (random.one_in(4)) waiter.unmap(volume_, page);
            PageRef ref;
            if (random.one_in(3)) ref = volume_.take_replacement(page);
            const bool replaces = !ref.hole();
            if (!replaces && waiter.acquire(volume_, page, ref) != Status::ok) {
                ++refused;
                return;
            }
            if (random.one_in(16)) std::this_thread::yield();  // a clone may come now
            word_of(ref) = change;
            while (replaces && !volume_.replace(page, ref)) std::this_thread::yield();
            ref.reset();
            ended_ = change;
        }
    }
    std::uint64_t begun() const { return begun_; }
    std::uint64_t ended() const { return ended_; }
    // Whether the volume has the changes up to one that is neither before `first` nor after `last`.
    bool is_prefix(const Volume& volume, std::uint64_t first, std::uint64_t last) const {
        std::vector<std::uint64_t> seen;
        for (std::uint64_t page = 0; page != pages; ++page) {
            seen.push_back(read_word(volume, page_of(page)));
        }
        const std::uint64_t newest = *std::ranges::max_element(seen);
        if (newest < first || newest > last) return false;
        for (std::uint64_t age = 0; age != pages; ++age) {
            const std::uint64_t expected = newest > age ? newest - age : 0;
            const std::uint64_t found = seen[(newest + pages - age) % pages];
            // The oldest page is that of the next change, which may have trimmed it.
            const bool is_trimmed = age == pages - 1 && found == 0;
            if (found != expected && !is_trimmed) return false;
        }
        return true;
    }

    std::atomic<std::uint32_t> refused{0};

 private:
    std::uint64_t page_of(std::uint64_t page) const { return page * 4 + number_; }

    const std::uint32_t number_;
    Volume& volume_;
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> ended_{0};
};

void clone_while_writing(bool moves) {
    CAPTURE(moves);
    constexpr std::uint32_t writers = 4;
    RigOptions options{.devices = "h", .spills = "h"};
    options.page_size = 4 * kib;  // so that copies are fast
    options.size = writers * Writer::pages * options.page_size;
    MovingRig rig(options, 1);
    std::atomic<bool> stop{false};
    std::vector<std::unique_ptr<Writer>> all;
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i != writers; ++i) {
        all.push_back(std::make_unique<Writer>(i, *rig.volume));
    }
    threads.reserve(writers);
    for (const auto& writer : all) {
        threads.emplace_back([&stop, its = writer.get()] { its->run(stop); });
    }
    std::thread mover([&] {
        while (moves && !stop) {
            rig.reclaim(MovingRig::all);
            rig.release();
        }
    });
    struct Snapshot {
        std::unique_ptr<Volume> volume;
        std::uint64_t first[writers];
        std::uint64_t last[writers];
    };
    std::vector<Snapshot> kept;
    std::uint32_t wrong = 0;
    for (int round = 0; round != 3000; ++round) {
        Snapshot next{};
        for (std::uint32_t i = 0; i != writers; ++i) next.first[i] = all[i]->ended();
        next.volume = clone_of(*rig.volume);
        for (std::uint32_t i = 0; i != writers; ++i) next.last[i] = all[i]->begun();
        kept.push_back(std::move(next));
        for (const Snapshot& each : kept) {
            for (std::uint32_t i = 0; i != writers; ++i) {
                if (!all[i]->is_prefix(*each.volume, each.first[i], each.last[i])) ++wrong;
            }
        }
        if (kept.size() == 4) kept.erase(kept.begin() + round % 3);
    }
    stop = true;
    for (std::thread& each : threads) each.join();
    mover.join();
    CHECK(wrong == 0);
    for (std::uint32_t i = 0; i != writers; ++i) {
        CHECK(all[i]->refused == 0);
        CHECK(all[i]->is_prefix(*rig.volume, all[i]->ended(), all[i]->ended()));
    }
    kept.clear();
    CHECK(rig.volume->retired_bytes() == 0);
    CHECK(rig.volume->contents().shared == 0);
    for (std::uint64_t page = 0; page != rig.pages(); ++page) rig.volume->unmap(page);
    CHECK(rig.volume->pool(0).memory().pages().mapped_pages() == 0);
    CHECK(rig.volume->pool(1).memory().pages().mapped_pages() == 0);
}

TEST_CASE("threads: a clone has the writes up to one instant, and no later ones") {
    clone_while_writing(false);
    clone_while_writing(true);
}

}  // namespace
}  // namespace gpunbd::storage::test
