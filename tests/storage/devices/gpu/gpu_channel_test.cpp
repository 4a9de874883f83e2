#include "storage/devices/gpu/gpu_channel.hpp"

#include "tests/storage/devices/gpu/gpu_channel_rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

// --- choice of the path
// ---------------------------------------------------------------------------

TEST_CASE("gpu channel: each copy uses the path that the policy selects") {
    constexpr struct {
        PathKind kind;
        Copy::Kind copy;
        const char* path;
        bool mapped = true;
    } rows[] = {
        {PathKind::mapping, Copy::Kind::write, "cpu"},
        {PathKind::mapping, Copy::Kind::zero, "cpu"},
        {PathKind::mapping, Copy::Kind::read, "engine"},
        {PathKind::streaming_load, Copy::Kind::read, "cpu"},
        {PathKind::streaming_load, Copy::Kind::read, "engine", false},
        {PathKind::streaming_load, Copy::Kind::write, "engine"},
        {PathKind::copy_engine, Copy::Kind::read, "engine"},
        {PathKind::copy_engine, Copy::Kind::write, "engine"},
        {PathKind::copy_engine, Copy::Kind::zero, "engine"},
        {PathKind::engine_batch, Copy::Kind::read, "batch"},
        {PathKind::engine_batch, Copy::Kind::write, "batch"},
        {PathKind::kernel, Copy::Kind::write, "kernel"},
        {PathKind::kernel, Copy::Kind::zero, "kernel"},
        {PathKind::persistent_kernel, Copy::Kind::read, "persistent"},
        {PathKind::persistent_kernel, Copy::Kind::zero, "persistent"},
    };
    for (const auto& row : rows) {
        CAPTURE(to_text(row.kind));
        CAPTURE(static_cast<int>(row.copy));
        ChannelRig rig(only(row.kind));
        rig.add(row.copy, 4096, row.mapped);
        const Steps steps = rig.poll();
        REQUIRE_FALSE(steps.empty());
        CHECK(steps.front() == std::string(row.path) + " 4096");
        rig.end_all();
    }
}

TEST_CASE("gpu channel: the CPU's limit applies to the sum of its copies") {
    ChannelRig rig;
    rig.read(512, true);
    CHECK(rig.poll() == Steps{"cpu 512", "done 512"});
    rig.read(600, true);
    rig.read(600,
             true);  // 1200 bytes exceed the CPU's limit of 1024, so one copy uses this path
    CHECK(rig.poll() == Steps{"persistent 600", "cpu 600", "done 600", "persistent starts"});
}

TEST_CASE("gpu channel: copies that a path does not support use another one") {
    ChannelRig persistent(only(PathKind::persistent_kernel));
    persistent.paths.persistent.take_at_most(8 * kib);
    persistent.read(8 * kib);
    persistent.read(8 * kib + 1);
    CHECK(persistent.poll() ==
          Steps{"persistent 8192", "kernel 8193", "persistent starts", "kernel starts"});

    ChannelRig kernel(only(PathKind::kernel));
    kernel.paths.kernel.take_at_most(64 * kib);
    kernel.read(64 * kib);
    kernel.read(64 * kib + 1);
    CHECK(kernel.poll() == Steps{"kernel 65536", "engine 65537", "kernel starts", "engine starts"});

    ChannelRig batch(only(PathKind::engine_batch));
    batch.paths.batch.take_at_most(0);  // as with an old driver
    batch.read(1);
    CHECK(batch.poll() == Steps{"engine 1", "engine starts"});
}

TEST_CASE("gpu channel: the load of all channels of the device determines the path") {
    constexpr auto alone = Policy::on(Load::alone);
    constexpr auto busy = Policy::on(Load::busy);
    constexpr auto several = Policy::on(Load::several);
    const Policy by_load{{{Direction::read, alone, Policy::any_size, PathKind::copy_engine},
                          {Direction::read, busy, Policy::any_size, PathKind::kernel},
                          {Direction::read, several, Policy::any_size, PathKind::engine_batch}}};
    ChannelRig rig(by_load);
    rig.read(1);
    CHECK(rig.poll() == Steps{"engine 1", "engine starts"});
    rig.state.engine_copies = 1;
    rig.read(2);
    CHECK(rig.poll() == Steps{"kernel 2", "kernel starts"});
    rig.state.engine_copies = 0;
    rig.read(3);  // a kernel is in flight
    CHECK(rig.poll() == Steps{"kernel 3", "kernel starts"});
    rig.read(4);
    rig.read(5);
    CHECK(rig.poll() == Steps{"batch 4", "batch 5", "batch starts"});
}

TEST_CASE("gpu channel: urgent copies come first, and short ones wait for no other copy") {
    ChannelRig rig;
    rig.read(1 * mib, true);
    rig.read(8 * kib, true);
    rig.urgent = true;
    rig.read(64 * kib, true);
    CHECK(rig.poll() == Steps{"persistent 65536", "persistent starts", "persistent 8192",
                              "persistent starts", "engine 1048576", "engine starts"});
    rig.read(4 * kib, true);
    rig.add(Copy::Kind::zero, 512, true);
    CHECK(rig.poll() == Steps{"cpu 4096", "done 4096", "cpu 512", "done 512"});
    rig.read(4 * kib, false);
    CHECK(rig.poll() == Steps{"persistent 4096", "persistent starts"});
    // The CPU would take longer for many than they wait for others.
    for (int i = 0; i != 3; ++i) rig.read(4 * kib, true);
    CHECK(rig.poll() == Steps{"persistent 4096", "cpu 4096", "done 4096", "cpu 4096", "done 4096",
                              "persistent starts"});
}

TEST_CASE("gpu channel: an urgent copy alone uses the fastest path") {
    ChannelRig rig;
    rig.urgent = true;
    rig.read(4 * kib, true);
    CHECK(rig.poll() == Steps{"persistent 4096", "persistent starts"});
}

TEST_CASE("gpu channel: launches no kernel if kernels are not allowed") {
    ChannelRig rig(default_policy(), GpuUse::copy_engines);
    rig.read(4096);
    CHECK(rig.poll() == Steps{"engine 4096", "engine starts"});
    rig.read(4096);
    rig.read(8192);
    CHECK(rig.poll() == Steps{"batch 4096", "batch 8192", "batch starts"});
}

TEST_CASE("gpu channel: copies of revocable memory are never batched by the copy engines") {
    ChannelRig engines(default_policy(), GpuUse::copy_engines);
    engines.revocable = true;
    engines.read(4096);
    engines.read(8192);
    CHECK(engines.poll() == Steps{"engine 4096", "engine 8192", "engine starts"});
    engines.revocable = false;  // other copies in the same round still are
    engines.read(4096);
    engines.revocable = true;
    engines.read(8192);
    CHECK(engines.poll() == Steps{"batch 4096", "engine 8192", "engine starts", "batch starts"});

    ChannelRig kernels;
    kernels.revocable = true;
    kernels.read(64 * kib);
    kernels.read(64 * kib);
    CHECK(kernels.poll() == Steps{"kernel 65536", "kernel 65536", "kernel starts"});
}

TEST_CASE("gpu channel: starts small reads, then small writes, then long copies, each together") {
    const Policy policy{{{Direction::read, Policy::any_load, 8 * kib, PathKind::kernel},
                         {Direction::write, Policy::any_load, 8 * kib, PathKind::kernel}}};
    ChannelRig rig(policy);
    rig.read(512 * kib);
    rig.add(Copy::Kind::write, 100);
    rig.read(1);
    rig.add(Copy::Kind::zero, 200);
    rig.add(Copy::Kind::write, 400 * kib);
    rig.read(2);
    CHECK(rig.poll() == Steps{"kernel 1", "kernel 2", "kernel starts", "kernel 100", "engine 200",
                              "kernel starts", "engine starts", "engine 524288", "engine 409600",
                              "engine starts"});
    CHECK(rig.none_ended());
}

// --- places --------------------------------------------------------------------------------------

TEST_CASE("gpu channel: copies wait in order for a place in their path, and others pass them") {
    const Policy policy{{{Direction::read, Policy::any_load, 8 * kib, PathKind::kernel}}};
    ChannelRig rig(policy);
    rig.paths.kernel.places = 2;
    for (std::uint32_t length = 1; length <= 5; ++length) rig.read(length);
    rig.read(mib);
    CHECK(rig.poll() ==
          Steps{"kernel 1", "kernel 2", "kernel starts", "engine 1048576", "engine starts"});
    CHECK(rig.poll().empty());
    rig.read(6);
    rig.paths.kernel.end_one(0);
    rig.paths.kernel.places = 3;
    CHECK(rig.poll() == Steps{"done 1", "kernel 3", "kernel 4", "kernel 5", "kernel starts"});
    rig.paths.kernel.places = 1;
    CHECK(rig.poll() == Steps{"kernel 6", "kernel starts"});
    rig.end_all();
}

TEST_CASE("gpu channel: a copy that ends immediately may enqueue the next one") {
    ChannelRig rig;
    std::uint32_t more = 3;
    rig.when_done = [&] {
        if (more != 0) --more, rig.read(64, true);
    };
    rig.read(64, true);
    while (rig.channel.busy()) rig.channel.poll();
    CHECK(rig.paths.taken().size() == 8);
    CHECK(rig.all_ended(Status::ok));
}

// --- kernels -------------------------------------------------------------------------------------

TEST_CASE("gpu channel: a single copy bypasses a sleeping kernel and wakes it at its end") {
    ChannelRig rig;
    rig.paths.persistent.is_awake = false;
    rig.read(4096);
    CHECK(rig.poll() == Steps{"engine 4096", "engine starts"});
    CHECK(rig.paths.persistent.passed_by == 1);
    CHECK(rig.paths.persistent.woken == 0);
    rig.paths.engine.end_all();
    CHECK(rig.poll() == Steps{"done 4096", "persistent wakes"});
    rig.paths.persistent.is_awake = true;
    rig.read(4096);
    CHECK(rig.poll() == Steps{"persistent 4096", "persistent starts"});
    rig.paths.persistent.end_all();
    CHECK(rig.poll() == Steps{"done 4096"});
    CHECK(rig.paths.persistent.passed_by == 1);
    CHECK(rig.paths.persistent.woken == 1);
}

TEST_CASE("gpu channel: copies of the kernel itself do not wake it") {
    ChannelRig rig;
    rig.paths.persistent.is_awake = false;
    rig.read(4096);
    CHECK(rig.poll() == Steps{"engine 4096", "engine starts"});
    rig.read(1);
    rig.read(2);
    CHECK(rig.poll() == Steps{"persistent 1", "persistent 2", "persistent starts"});
    rig.paths.persistent.end_all();
    CHECK(rig.poll() == Steps{"done 1", "done 2"});
    rig.paths.engine.end_all();
    CHECK(rig.poll() == Steps{"done 4096", "persistent wakes"});
}

TEST_CASE("gpu channel: several copies wake a kernel directly") {
    ChannelRig rig;
    rig.paths.persistent.is_awake = false;
    rig.read(4096);
    rig.read(4096);
    CHECK(rig.poll() == Steps{"persistent 4096", "persistent 4096", "persistent starts"});
    CHECK(rig.paths.persistent.passed_by == 0);
    rig.paths.persistent.end_all();
    CHECK(rig.poll() == Steps{"done 4096", "done 4096"});
    CHECK(rig.paths.persistent.woken == 0);
}

TEST_CASE("gpu channel: slow kernels are reported, and no more kernels are launched") {
    ChannelRig rig;
    rig.paths.persistent.take_at_most(0);
    rig.read(4096);
    rig.read(4096);
    CHECK(rig.poll() == Steps{"kernel 4096", "kernel 4096", "kernel starts"});
    while (rig.channel.stops == 0) rig.channel.poll();  // it takes two checks, 200 us apart
    CHECK_FALSE(rig.state.competition.kernels_allowed());
    rig.read(4096);
    rig.read(4096);
    CHECK(rig.poll() == Steps{"batch 4096", "batch 4096", "batch starts"});
    rig.end_all();
    CHECK(rig.channel.stops == 1);
}

// --- the time since a kernel has ended

const Competition::Clock::time_point first_look =
    Competition::Clock::time_point{} + std::chrono::hours(1);
constexpr Competition::Clock::duration half_slow = Competition::slow / 2;

TEST_CASE("slow kernels: reported if none has ended for a time, and again after the same time") {
    SlowKernels kernels;
    CHECK_FALSE(kernels.seen(true, first_look));
    CHECK_FALSE(kernels.seen(false, first_look + half_slow));
    CHECK(kernels.seen(false, first_look + 2 * half_slow));
    CHECK_FALSE(kernels.seen(false, first_look + 3 * half_slow));
    CHECK(kernels.seen(false, first_look + 4 * half_slow));
}

TEST_CASE("slow kernels: each end of a kernel restarts the time") {
    SlowKernels kernels;
    CHECK_FALSE(kernels.seen(true, first_look));
    kernels.ended();
    CHECK_FALSE(kernels.seen(false, first_look + 2 * half_slow));
    kernels.ended();
    kernels.ended();
    CHECK_FALSE(kernels.seen(false, first_look + 4 * half_slow));
    CHECK_FALSE(kernels.seen(false, first_look + 5 * half_slow));
    CHECK(kernels.seen(false, first_look + 6 * half_slow));
}

TEST_CASE("slow kernels: none is reported without kernels in flight") {
    SlowKernels kernels;
    for (int i = 0; i != 10; ++i) CHECK_FALSE(kernels.seen(true, first_look + i * 2 * half_slow));
    CHECK_FALSE(kernels.seen(false, first_look + 19 * half_slow));
}

}  // namespace
}  // namespace gpunbd::storage::test
