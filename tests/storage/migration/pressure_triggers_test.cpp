#include "storage/migration/pressure_watch.hpp"

#include <doctest/doctest.h>
#include <poll.h>

#include <string>

#include "tests/temporary_folder.hpp"

namespace gpunbd::storage::test {
namespace {

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
