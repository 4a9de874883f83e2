// The pool works with as many threads as the system and the devices allow.
#include "storage/migration/page_mover.hpp"

#include "tests/storage/no_threads.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr ChannelOptions options{.chunk_size = 64 * kib, .slots = 2, .pinned = 256 * kib};

TEST_CASE("mover pool: threads that cannot open a channel leave; without one, open() throws") {
    LatchDevice device(0, {});
    device.channels_left = 3;
    Device* const devices[] = {&device};
    MoverPool pool(options, 8);
    CHECK(pool.threads() == 1);
    pool.open(devices);
    CHECK(pool.threads() == 3);
    pool.open(devices);  // changes nothing
    CHECK(pool.threads() == 3);

    LatchDevice none(0, {});
    none.channels_left = 0;
    Device* const scarce[] = {&none};
    MoverPool other(options, 4);
    CHECK_THROWS_AS(other.open(scarce), std::runtime_error);
    none.channels_left = 4;
    other.open(scarce);
    CHECK(other.threads() == 4);
}

TEST_CASE("mover pool: pages move with the calling thread only if the system refuses threads") {
    RigOptions with{.devices = "s", .spills = "h"};
    with.size = 40 * with.page_size;
    Rig rig(with);
    rig.map_all();
    MoverPool pool(options, 4);
    {
        const NoThreads none;
        pool.open(rig.volume->devices());
    }
    CHECK(pool.threads() == 1);
    std::vector<PageToMove> pages;
    for (std::uint64_t page = 0; page != rig.pages(); ++page) {
        pages.push_back({.volume = rig.volume.get(), .from = &rig.volume->pool(0), .number = page});
    }
    pool.move(pages);
    for (const PageToMove& page : pages) {
        CHECK(page.outcome == PageToMove::Outcome::moved);
        CHECK(page.to == &rig.volume->pool(1));
    }
    CHECK(rig.volume->memory()[0].mapped == 0);
}

}  // namespace
}  // namespace gpunbd::storage::test
