// The pool works with as many threads as the system and the devices allow.
#include "storage/migration/page_mover.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "tests/storage/no_threads.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/rig.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr ChannelOptions options{.chunk_size = 64 * kib, .slots = 2, .pinned = 256 * kib};

// Opens so many channels and no more.
class ScarceDevice final : public LatchDevice {
 public:
    explicit ScarceDevice(int channels) : LatchDevice(0, {}), channels_(channels) {}
    std::unique_ptr<Channel> open_channel(const ChannelOptions& with) override {
        if (channels_-- <= 0) throw std::runtime_error("no channel is left");
        return LatchDevice::open_channel(with);
    }
    void allow(int channels) { channels_ = channels; }

 private:
    std::atomic<int> channels_;
};

TEST_CASE("mover pool: threads that cannot open a channel leave; without one, open() throws") {
    ScarceDevice device(3);
    Device* const devices[] = {&device};
    MoverPool pool(options, 8);
    CHECK(pool.threads() == 1);
    pool.open(devices);
    CHECK(pool.threads() == 3);
    pool.open(devices);  // changes nothing
    CHECK(pool.threads() == 3);

    ScarceDevice none(0);
    Device* const scarce[] = {&none};
    MoverPool other(options, 4);
    CHECK_THROWS_AS(other.open(scarce), std::runtime_error);
    none.allow(4);
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
