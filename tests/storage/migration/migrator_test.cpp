// Pages leave a device and return while clients read, write and trim them.
#include "storage/migration/migrator.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tests/storage/pages/page_waiter.hpp"
#include "tests/storage/rig.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t all = ~std::uint64_t{0};

// A rig with a migrator of its first device, which shares its volume.
class MovingRig : public Rig {
 public:
    explicit MovingRig(const RigOptions& with)
        : Rig(with),
          shared(volume.get(), [](Volume*) {}),
          migrator(
              *devices[0], [this] { return Migrator::Volumes{shared}; }, with.channels) {
        migrator.start();
    }

    Migration reclaim(std::uint64_t bytes) {
        std::promise<Migration> done;
        migrator.reclaim(bytes, [&](const Migration& out) { done.set_value(out); });
        return done.get_future().get();
    }
    Migration release() {
        std::promise<Migration> done;
        migrator.release([&](const Migration& out) { done.set_value(out); });
        return done.get_future().get();
    }
    Device& home() { return *devices[0]; }
    std::uint64_t bytes_on(std::uint32_t device) { return volume->memory()[device].mapped; }

    std::shared_ptr<Volume> shared;
    Migrator migrator;
};

RigOptions options_of(std::string_view home, std::string_view spills) {
    RigOptions options;
    options.devices = home;
    options.spills = spills;
    options.size = 40 * options.page_size;
    return options;
}

void write(MovingRig& rig, std::uint64_t offset, std::uint32_t length, std::uint32_t seed) {
    ClientAccount account;
    Random random(seed);
    WriteJob job(rig, *rig.channels, account, offset, length, seed);
    REQUIRE(run(*rig.channels, {&job}, random));
    REQUIRE(job.status() == Status::ok);
    settle(*rig.channels);
}

void check_contents(MovingRig& rig) {
    ClientAccount account;
    Random random(1);
    for (std::uint64_t page = 0; page != rig.pages(); ++page) {
        ReadJob job(rig, *rig.channels, account, page * rig.options.page_size,
                    static_cast<std::uint32_t>(rig.options.page_size));
        REQUIRE(run(*rig.channels, {&job}, random));
        REQUIRE(job.status() == Status::ok);
    }
    settle(*rig.channels);
}

TEST_CASE("migrator: all pages leave the device and return, with their contents") {
    for (const auto& [home, spills] :
         {std::pair{"h", "h"}, {"s", "h"}, {"h", "s"}, {"s", "s"}, {"s", "hs"}}) {
        CAPTURE(home);
        CAPTURE(spills);
        MovingRig rig(options_of(home, spills));
        for (std::uint32_t page = 0; page < rig.pages(); page += 2) {
            write(rig, page * rig.options.page_size + 1000, 100000, page + 1);
        }
        const std::uint64_t mapped = rig.volume->mapped_bytes();
        const Migration out = rig.reclaim(all);
        CHECK(out.error.empty());
        CHECK(out.released == out.wanted);
        CHECK(out.moved.at(rig.devices[1]->info().id) == mapped);
        CHECK(rig.home().budget().used() == 0);
        CHECK(rig.memories[0]->used() == 0);
        CHECK(rig.bytes_on(0) == 0);
        check_contents(rig);
        write(rig, 0, 4000, 99);                      // in the spill memory
        write(rig, rig.options.page_size, 4000, 98);  // a hole, which cannot be mapped at home
        CHECK(rig.bytes_on(0) == 0);
        const Migration back = rig.release();
        CHECK(back.moved.at(rig.home().info().id) == mapped + rig.options.page_size);
        CHECK(rig.bytes_on(0) == rig.volume->mapped_bytes());
        CHECK(rig.spill_budget.used() == 0);
        check_contents(rig);
    }
}

TEST_CASE("migrator: it moves no more than asked, and pages that are used least") {
    RigOptions options = options_of("h", "h");
    options.page_size = 16 * mib;  // four in a slab
    options.size = 16 * options.page_size;
    options.channels = {.chunk_size = 1 * mib, .slots = 2, .pinned = 4 * mib};
    MovingRig rig(options);
    for (std::uint64_t page = 0; page != rig.pages(); ++page) {
        PageRef ref;
        REQUIRE(rig.volume->map(page, ref) == Status::ok);
    }
    rig.reclaim(0);  // the thread has taken the present use for its beginning
    const std::uint64_t before = rig.home().budget().used();
    const Migration out = rig.reclaim(64 * mib);
    CHECK(out.released == 64 * mib);
    CHECK(rig.home().budget().used() == before - 64 * mib);
    CHECK(out.moved.at("memory:1") <= 64 * mib);
}

TEST_CASE("migrator: with too little spill memory the rest stays, and the result says so") {
    MovingRig rig(options_of("h", "h"));
    for (std::uint32_t page = 0; page != rig.pages(); ++page) {
        write(rig, page * rig.options.page_size, 5000, page + 1);
    }
    rig.spill_budget.set_limit(0);
    const Migration out = rig.reclaim(all);
    CHECK(out.spill_full);
    CHECK(out.released == 0);
    CHECK(out.moved.empty());
    CHECK(rig.migrator.totals().unmet == out.wanted);
    check_contents(rig);
}

TEST_CASE("migrator: a page that cannot be copied stays where it is") {
    MovingRig rig(options_of("s", "h"));
    write(rig, 0, 5000, 1);
    rig.script.copies_until_failure = 0;
    const Migration out = rig.reclaim(all);
    CHECK(out.failed == 1);
    check_contents(rig);
}

TEST_CASE("migrator: a page that is being written does not move; a read one does") {
    MovingRig rig(options_of("h", "h"));
    write(rig, 0, 5000, 1);
    write(rig, rig.options.page_size, 5000, 2);
    PageRef written;
    REQUIRE(rig.volume->map(0, written) == Status::ok);
    const PageRef read = rig.volume->find(1);
    const Migration out = rig.reclaim(all);
    CHECK(out.busy != 0);
    CHECK(rig.volume->slot(0).load().device() == 0);
    CHECK(rig.volume->slot(1).load().device() == 1);
    // The reader still sees the old page, which is not used for anything else.
    CHECK(std::memcmp(read.cpu(), rig.model.data() + rig.options.page_size, 5000) == 0);
    written.reset();
    CHECK(rig.reclaim(all).busy == 0);
    check_contents(rig);
}

TEST_CASE("page pool: a writer waits for the end of a move, and a trim does not") {
    MovingRig rig(options_of("h", "h"));
    write(rig, 0, 5000, 1);
    PagePool& home = rig.volume->pool(0);
    PagePool& spill = rig.volume->pool(1);
    for (const bool trimmed : {false, true}) {
        CAPTURE(trimmed);
        PageIndex target = 0;
        REQUIRE(spill.take_unclear(target) == Status::ok);
        PageRef source;
        const EntrySlot slot = rig.volume->slot(0);
        REQUIRE(home.begin_move(slot, source));
        CHECK_FALSE(rig.volume->find(0).hole());
        PageRef page;
        TestWaiter writer;
        REQUIRE_FALSE(writer.try_acquire(*rig.volume, 0, page).has_value());
        if (trimmed) {
            rig.volume->unmap(0);
            CHECK(rig.volume->find(0).hole());
            CHECK_FALSE(home.commit_move(slot, spill, target));
            spill.put_back(target);
        } else {
            home.cancel_move(slot);
            spill.put_back(target);
        }
        source.reset();
        REQUIRE(writer.acquire(*rig.volume, 0, page) == Status::ok);
        CHECK(&page.device() == &rig.home());
    }
}

// Each page has one thread that writes it; all threads read it.
TEST_CASE("migrator: no write is lost and no page is reused too early, with many threads") {
    constexpr std::uint32_t threads = 4;
    RigOptions options = options_of("h", "h");
    options.page_size = 64 * kib;
    options.size = 64 * options.page_size;
    MovingRig rig(options);
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

}  // namespace
}  // namespace gpunbd::storage::test
