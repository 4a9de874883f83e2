// Pages leave a device while the kernel reports memory pressure, and return gradually afterwards.
#include "storage/migration/pressure_watch.hpp"

#include <poll.h>
#include <sys/socket.h>

#include "tests/socket_pairs.hpp"
#include "tests/storage/migration/moving_rig.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

// A socket for which poll() returns POLLPRI, because of urgent data, while there is pressure.
class FakeTrigger {
 public:
    explicit FakeTrigger(std::pair<int, int> ends = gpunbd::test::tcp_pair())
        : sender_(ends.first), receiver_(ends.second) {}

    std::vector<OwnedFd> files() const {
        std::vector<OwnedFd> out;
        out.push_back(OwnedFd::copy_of(receiver_));
        return out;
    }
    void begin() const { REQUIRE(::send(sender_.get(), "!", 1, MSG_OOB) == 1); }
    void end() const {
        char byte = 0;
        while (::recv(receiver_.get(), &byte, 1, MSG_OOB) != 1) std::this_thread::yield();
    }
    // poll() returns POLLERR from now on.
    void break_off() {
        const linger reset{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(sender_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        sender_ = OwnedFd();
    }

 private:
    OwnedFd sender_;
    OwnedFd receiver_;
};

// All pages of the volume are on the device, four in a slab of 64 MiB.
class PressedRig : public MovingRig {
 public:
    explicit PressedRig(std::chrono::milliseconds settling_time)
        : MovingRig(large_pages("h", "h")),
          watch(home(), migrator, trigger.files(), settling_time) {
        map_all();
        watch.start();
    }

    std::uint64_t used() { return home().budget().used(); }
    std::uint64_t limit() { return home().budget().limit(); }
    // A time limit would only hide how slow the machine is.
    template <typename Condition>
    static void await(Condition condition) {
        while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    FakeTrigger trigger;
    PressureWatch watch;
};

TEST_CASE("pressure watch: pages leave while there is pressure, and return step by step") {
    PressedRig rig(std::chrono::milliseconds(1));
    const std::uint64_t all = rig.used();
    REQUIRE(all == 4 * PressureWatch::least_step);
    CHECK(rig.migrator.totals().reclaims == 0);
    rig.trigger.begin();
    rig.await([&] { return rig.used() == 0; });
    rig.trigger.end();
    rig.await([&] { return rig.limit() == SlabBudget::unlimited; });
    CHECK(rig.used() == all);
    CHECK(rig.bytes_on(0) == all);
    const Migrator::Totals totals = rig.migrator.totals();
    CHECK(totals.reclaims >= 4);
    CHECK(totals.releases >= 4);
    // It is ready for the next time.
    rig.trigger.begin();
    rig.await([&] { return rig.used() == 0; });
    rig.trigger.end();
}

TEST_CASE("pressure watch: pages leave but do not return while it is held") {
    PressedRig rig(std::chrono::milliseconds(1));
    rig.watch.hold(true);
    rig.trigger.begin();
    rig.await([&] { return rig.used() == 0; });
    rig.trigger.end();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // many times the settling time
    CHECK(rig.used() == 0);
    CHECK(rig.migrator.totals().releases == 0);
    rig.watch.hold(false);
    rig.await([&] { return rig.limit() == SlabBudget::unlimited; });
    CHECK(rig.bytes_on(0) == 4 * PressureWatch::least_step);
}

TEST_CASE("pressure watch: pages that have no place do not reduce the limit further") {
    PressedRig rig(std::chrono::hours(1));
    const std::uint64_t all = rig.used();
    rig.spill_budget.set_limit(2 * PressureWatch::least_step);
    rig.trigger.begin();
    rig.await([&] { return rig.migrator.totals().reclaims >= 6; });
    rig.trigger.end();
    rig.await([&] { return rig.limit() == rig.used(); });
    CHECK(rig.used() == all - 2 * PressureWatch::least_step);
}

TEST_CASE("pressure watch: it ends while the migrator works for it") {
    for (int round = 0; round != 2; ++round) {
        PressedRig rig(std::chrono::milliseconds(1));
        rig.trigger.begin();
        rig.await([&] { return rig.used() != 4 * PressureWatch::least_step; });
    }
}

TEST_CASE("pressure watch: a trigger that is gone is not polled again") {
    PressedRig rig(std::chrono::milliseconds(1));
    rig.trigger.begin();
    rig.await([&] { return rig.used() == 0; });
    rig.trigger.break_off();
    rig.await([&] { return rig.limit() == SlabBudget::unlimited; });
    CHECK(rig.bytes_on(0) == 4 * PressureWatch::least_step);
}

TEST_CASE("pressure triggers: of the system and of the process's own control group") {
    const gpunbd::test::TemporaryFolder tree;  // a fake /proc and /sys
    tree.write("proc/pressure/memory", "");
    tree.write("proc/self/cgroup", "4:memory:/other\n0::/a.slice/b.service\n");
    tree.write("sys/fs/cgroup/a.slice/b.service/memory.pressure", "");
    tree.write("sys/fs/cgroup/memory.pressure", "");
    const PressureTriggers triggers = open_pressure_triggers(tree.path());
    CHECK(triggers.files.size() == 2);
    CHECK(triggers.why_none.empty());
    const std::string expected = std::string("some 150000 1000000") + '\0';
    CHECK(tree.read("proc/pressure/memory") == expected);
    CHECK(tree.read("sys/fs/cgroup/a.slice/b.service/memory.pressure") == expected);
    CHECK(tree.read("sys/fs/cgroup/memory.pressure").empty());
}

TEST_CASE("pressure triggers: the reason why there are none") {
    const gpunbd::test::TemporaryFolder tree;  // a fake /proc and /sys
    CHECK(open_pressure_triggers(tree.path()).why_none ==
          tree.path("proc/pressure/memory") + ": No such file or directory");
}

TEST_CASE("pressure triggers: the kernel accepts them") {
    const PressureTriggers triggers = open_pressure_triggers("/");
    if (triggers.files.empty()) {
        MESSAGE("SKIPPED: " << triggers.why_none);
        return;
    }
    for (const OwnedFd& file : triggers.files) {
        pollfd polled{.fd = file.get(), .events = POLLPRI, .revents = 0};
        CHECK(::poll(&polled, 1, 0) >= 0);
        CHECK((polled.revents & (POLLERR | POLLNVAL)) == 0);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
