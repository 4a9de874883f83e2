// What volumes need until they are destroyed, and the owner of the last one.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "server/handover/kept_device_state.hpp"
#include "tests/checked.hpp"
#include "tests/server/handover/kept_rig.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;
using Clock = KeptContents::Clock;

// With AddressSanitizer it also detects calls of destroyed kept parts.
TEST_CASE("kept contents: a volume that outlives its freed contents ends correctly") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    constexpr std::uint64_t slabs = 6;
    REQUIRE(server.make({export_of_slabs("one", slabs)}).problems.empty());
    server.fill(slabs);
    auto client = server.exports.at(0)->volume;
    const Clock::time_point start = Clock::now();
    server.settle(start);
    server.make({});
    CHECK(server.settle(start) == start + 60s);
    CHECK_FALSE(server.settle(start + 60s));
    CHECK(supervisor.names().empty());

    server.device().releasing.close();
    for (std::uint64_t page = 0; page != slabs; ++page) client->unmap(page);
    server.device().releasing.wait_for_one();
    client.reset();  // its end waits for the slabs that are being released
    CHECK_FALSE(server.settle(start + 61s));
    server.device().releasing.open();
}

TEST_CASE("kept contents: a server ends with contents that no export has") {
    LivingSupervisor supervisor;
    Names names;
    for (const bool settled : {false, true}) {
        CAPTURE(settled);
        Life server(supervisor);
        REQUIRE(server.make({kept_export("one")}).problems.empty());
        REQUIRE(server.make({kept_export("one", 16)}).problems.empty());
        if (settled) server.settle(Clock::now());
        server.fill(3);
        server.contents.quiesce();  // so that no slab is allocated ahead
        names = supervisor.names();
        CHECK(names.size() >= 4);  // two tables, two slabs
    }
    CHECK(supervisor.names() == names);
}

// Like the thread that removes the mappings of an earlier server.
TEST_CASE("volume disposal: waits for volumes that other threads still own") {
    storage::test::MemoryDevice device(0, {});
    std::atomic<bool> ending{false};
    std::thread other;
    {
        VolumeDisposal disposal;
        auto volume = disposal.shared(checked(
            storage::Volume::create({.size = 4 * kept_page, .page_size = kept_page}, {&device})));
        {
            storage::PageRef held;
            REQUIRE(volume->map(0, held) == storage::Status::ok);
        }
        other = std::thread([&ending, volume = std::move(volume)]() mutable {
            ending.wait(false);
            std::this_thread::sleep_for(
                50ms);  // time for the disposal to end early, which would be an error
            volume.reset();
        });
        CHECK(device.slabs() == 1);
        ending = true;
        ending.notify_one();
    }
    CHECK(device.slabs() == 0);
    other.join();
}

TEST_CASE("volume disposal: does not wait for an unused reservation") {
    VolumeDisposal disposal;
    const VolumeDisposal::Reservation unused = disposal.reserve();
}

}  // namespace
}  // namespace gpunbd::server::test
