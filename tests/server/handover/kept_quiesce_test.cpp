// Quiesced contents, as while another process takes them over: no slab is added or removed, by any
// thread or operation in progress.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/server/handover/kept_rig.hpp"
#include "tests/storage/pages/page_waiter.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;
using Clock = KeptContents::Clock;
using storage::test::TestWaiter;

constexpr std::uint64_t resting_slabs = 4;

void unmap_all(storage::Volume& volume) {
    for (std::uint64_t page = 0; page != resting_slabs; ++page) volume.unmap(page);
}

Names names_of(const std::vector<KeptContents::Copy>& copies) {
    Names names;
    for (const auto& each : copies) names.push_back(each.name);
    std::sort(names.begin(), names.end());
    return names;
}

PassedDescriptors handed_over(std::vector<KeptContents::Copy> copies) {
    PassedDescriptors all;
    for (auto& each : copies) all.add(each.name, std::move(each.descriptor));
    return all;
}

TEST_CASE("kept contents: while quiesced no slab is removed; afterwards it is") {
    LivingSupervisor supervisor;
    {
        Life server(supervisor);
        REQUIRE(server.make({export_of_slabs("one", resting_slabs)}).problems.empty());
        server.fill(resting_slabs);
        server.settle(Clock::now());
        server.contents.quiesce();
        unmap_all(server.volume());
        CHECK(server.device().memory.slabs() == resting_slabs);
        CHECK(supervisor.names().size() == 1 + resting_slabs);
    }
    // The next server has them, quiesced from the beginning.
    Life next(supervisor);
    next.contents.quiesce();
    REQUIRE(next.make({export_of_slabs("one", resting_slabs)}).refused.empty());
    CHECK(next.volume().allocated_bytes() == resting_slabs * kept_slab);
    CHECK(supervisor.names().size() == 1 + resting_slabs);
    next.contents.resume();
    while (next.device().memory.slabs() != 1) std::this_thread::yield();
    next.volume().quiesce();  // after the last message
    CHECK(supervisor.names().size() == 2);
}

TEST_CASE("kept contents: requests while quiesced wait, also for contents made meanwhile") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    REQUIRE(server.make({export_of_slabs("one", 2)}).problems.empty());
    server.settle(Clock::now());
    server.contents.quiesce();
    REQUIRE(server.make({export_of_slabs("one", 2), export_of_slabs("two", 2)}).problems.empty());
    const Names names = supervisor.names();
    CHECK(names.size() == 2);  // tables
    TestWaiter first;
    TestWaiter second;
    storage::PageRef one;
    storage::PageRef two;
    REQUIRE_FALSE(first.try_acquire(*server.exports.at(0)->volume, 0, one).has_value());
    REQUIRE_FALSE(second.try_acquire(*server.exports.at(1)->volume, 0, two).has_value());
    for (int i = 0; i != 50 && server.device().memory.slabs() == 0; ++i) {
        std::this_thread::sleep_for(1ms);  // time for an early change, which would be an error
    }
    CHECK(server.device().memory.slabs() == 0);
    CHECK(names_of(server.contents.copies()) == names);
    CHECK(first.in_progress());
    CHECK(second.in_progress());
    server.contents.resume();
    CHECK(first.acquire(*server.exports.at(0)->volume, 0, one) == storage::Status::ok);
    CHECK(second.acquire(*server.exports.at(1)->volume, 0, two) == storage::Status::ok);
}

// The client's write waits in this process until the slab is allocated. The slab is part of the
// hand-over: in the table, with the supervisor, and among the copies.
TEST_CASE("kept contents: quiesce() waits for a slab that is being allocated") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    const config::ExportOptions options = export_of_slabs("one", resting_slabs);
    REQUIRE(server.make({options}).problems.empty());
    server.settle(Clock::now());
    server.device().allocating.close();
    TestWaiter waiter;
    storage::PageRef page;
    REQUIRE_FALSE(waiter.try_acquire(server.volume(), 0, page).has_value());
    server.device().allocating.wait_for_one();
    std::atomic<bool> rests{false};
    std::vector<KeptContents::Copy> copies;
    std::thread upgrade([&] {
        server.contents.quiesce();
        rests = true;
        copies = server.contents.copies();
    });
    for (int i = 0; i != 50 && !rests; ++i)
        std::this_thread::sleep_for(1ms);  // time for an early return, which would be an error
    CHECK_FALSE(rests);
    server.device().allocating.open();
    upgrade.join();
    CHECK(waiter.answer() == storage::Status::ok);
    const Names kept = supervisor.names();
    CHECK(kept.size() >= 2);
    CHECK(names_of(copies) == kept);

    // The next process: completes what was cancelled here.
    Life next(handed_over(std::move(copies)), supervisor.way, {.devices = 1});
    next.contents.quiesce();
    REQUIRE(next.make({options}).refused.empty());
    REQUIRE(next.exports.size() == 1);
    CHECK(next.volume().mapped(0));
    CHECK(next.volume().allocated_bytes() == (kept.size() - 1) * kept_slab);
}

}  // namespace
}  // namespace gpunbd::server::test
