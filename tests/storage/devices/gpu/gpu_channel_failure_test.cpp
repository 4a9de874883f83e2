// Each copy ends exactly once, with its own status, on every path and after every failure.
#include <random>

#include "tests/storage/devices/gpu/gpu_channel_rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

TEST_CASE("gpu channel: a copy that a path refuses fails alone") {
    ChannelRig rig(only(PathKind::kernel));
    const std::size_t first = rig.read(1);
    const std::size_t refused = rig.read(2);
    const std::size_t last = rig.read(3);
    rig.poll();
    rig.paths.kernel.end_one(1, Status::io_error);
    rig.poll();
    CHECK(rig.ends(refused) == 1);
    CHECK(rig.status(refused) == Status::io_error);
    CHECK(rig.ends(first) == 0);
    CHECK(rig.ends(last) == 0);
    rig.paths.kernel.end_all();
    rig.poll();
    CHECK(rig.status(first) == Status::ok);
    CHECK(rig.status(last) == Status::ok);
    CHECK(rig.each_ended_once());
    CHECK_FALSE(rig.state.failed());
    rig.read(4);
    CHECK(rig.poll() == Steps{"kernel 4", "kernel starts"});
}

TEST_CASE("gpu channel: a failed copy object can be reused") {
    ChannelRig rig(only(PathKind::copy_engine));
    const std::size_t index = rig.read(1);
    rig.poll();
    rig.paths.engine.when_added = [](Copy& copy) { CHECK(copy.status == Status::ok); };
    bool again = true;
    Copy& copy = *rig.paths.engine.in_flight.front();
    rig.when_done = [&] {
        if (std::exchange(again, false)) rig.channel.enqueue(copy);
    };
    rig.paths.engine.end_all(Status::io_error);
    rig.poll();
    rig.paths.engine.end_all();
    rig.poll();
    CHECK(rig.ends(index) == 2);
    CHECK(rig.status(index) == Status::ok);
}

TEST_CASE("gpu channel: a failing device fails all copies in flight, gathered and waiting") {
    const Policy policy{{{Direction::read, Policy::any_load, 8 * kib, PathKind::kernel},
                         {Direction::write, Policy::any_load, 8 * kib, PathKind::persistent_kernel},
                         {Direction::zero, Policy::any_load, 8 * kib, PathKind::engine_batch}}};
    ChannelRig rig(policy);
    rig.paths.kernel.places = 2;
    for (std::uint32_t length = 1; length <= 4; ++length) rig.read(length);  // two of them wait
    for (std::uint32_t length = 1; length <= 3; ++length) rig.add(Copy::Kind::write, length);
    rig.add(Copy::Kind::zero, 1);
    rig.read(mib);
    rig.poll();
    REQUIRE(rig.paths.kernel.in_flight.size() == 2);
    REQUIRE(rig.paths.persistent.in_flight.size() == 3);
    REQUIRE(rig.paths.batch.in_flight.size() == 1);
    REQUIRE(rig.paths.engine.in_flight.size() == 1);
    rig.paths.persistent.end_one(0);  // it has succeeded, but has not been polled
    rig.read(5);                      // one more copy is queued
    rig.state.fail("an error", "a test");
    rig.poll();
    CHECK(rig.all_ended(Status::io_error));
    CHECK_FALSE(rig.channel.busy());
    for (FakePath* path : rig.paths.all()) CHECK(path->failures == 1);

    const std::size_t late = rig.read(6);
    rig.poll();
    CHECK(rig.ends(late) == 1);
    CHECK(rig.status(late) == Status::io_error);
}

TEST_CASE("gpu channel: a device may fail while copies are added, started or in flight") {
    const Policy policy{{{Direction::read, Policy::any_load, 8 * kib, PathKind::kernel},
                         {Direction::write, Policy::any_load, 8 * kib, PathKind::copy_engine}}};
    ChannelRig rig(policy);
    SUBCASE("the second copy of a path cannot be added") {
        rig.paths.kernel.when_added = [&](Copy& copy) {
            if (copy.length == 2) rig.state.fail("an error", "a test");
        };
        rig.add(Copy::Kind::write, 1);
        for (std::uint32_t length = 1; length <= 3; ++length) rig.read(length);
        rig.poll();
    }
    SUBCASE("gathered copies of a path do not start, and small writes follow") {
        rig.paths.kernel.when_started = [&] { rig.state.fail("an error", "a test"); };
        rig.read(1);
        rig.read(2);
        rig.add(Copy::Kind::write, 1);
        rig.poll();
    }
    SUBCASE("copies in flight in two paths never end") {
        rig.add(Copy::Kind::write, 1);
        rig.read(1);
        rig.poll();
        rig.paths.engine.when_looked_at = [&] { rig.state.fail("an error", "a test"); };
        while (rig.channel.busy()) rig.channel.poll();
    }
    CHECK(rig.all_ended(Status::io_error));
    CHECK_FALSE(rig.channel.busy());
}

TEST_CASE("gpu channel: each copy ends exactly once, for any sequence of results") {
    for (std::uint32_t seed = 0; seed != 50; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const auto below = [&](std::uint32_t limit) {
            return static_cast<std::uint32_t>(random() % limit);
        };
        ChannelRig rig;
        rig.paths.persistent.take_at_most(mib);
        rig.paths.kernel.take_at_most(mib);
        rig.paths.batch.take_at_most(mib / 2);
        const bool fails = seed % 2 == 1;
        for (int round = 0; round != 200; ++round) {
            for (std::uint32_t count = below(6); count != 0; --count) {
                rig.add(static_cast<Copy::Kind>(below(3)), 1 + below(1U << below(21)),
                        below(2) == 0);
            }
            for (FakePath* path : rig.paths.all()) {
                path->places = below(4);
                path->is_awake = below(2) == 0;
                if (below(3) == 0 && !path->in_flight.empty()) {
                    path->end_one(below(static_cast<std::uint32_t>(path->in_flight.size())),
                                  below(5) == 0 ? Status::io_error : Status::ok);
                }
                if (below(8) == 0) path->end_all();
            }
            if (fails && round == 150) rig.state.fail("an error", "a test");
            rig.poll();
            REQUIRE_FALSE((fails && round >= 150 && rig.channel.busy()));
        }
        while (rig.channel.busy()) {
            for (FakePath* path : rig.paths.all()) {
                path->places = 100;
                path->end_all();
            }
            rig.poll();
        }
        CHECK(rig.each_ended_once());
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
