#include "storage/migration/pressure_watch.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace gpunbd::storage::test {
namespace {

namespace fs = std::filesystem;

// A fake /proc and /sys.
class PressureTree {
 public:
    PressureTree() { REQUIRE(::mkdtemp(path_) != nullptr); }
    ~PressureTree() { fs::remove_all(path_); }
    PressureTree(const PressureTree&) = delete;
    PressureTree& operator=(const PressureTree&) = delete;

    void write(const fs::path& name, const std::string& text) const {
        fs::create_directories((path_ / name).parent_path());
        std::ofstream(path_ / name) << text;
    }
    std::string contents(const fs::path& name) const {
        std::ifstream file(path_ / name);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    const char* path() const { return path_; }

 private:
    char path_[32] = "/tmp/gpunbd-tree-XXXXXX";
};

TEST_CASE("pressure triggers: of the system and of the process's own control group") {
    const PressureTree tree;
    tree.write("proc/pressure/memory", "");
    tree.write("proc/self/cgroup", "4:memory:/other\n0::/a.slice/b.service\n");
    tree.write("sys/fs/cgroup/a.slice/b.service/memory.pressure", "");
    tree.write("sys/fs/cgroup/memory.pressure", "");
    const PressureTriggers triggers = open_pressure_triggers(tree.path());
    CHECK(triggers.files.size() == 2);
    CHECK(triggers.why_none.empty());
    const std::string expected = std::string("some 150000 1000000") + '\0';
    CHECK(tree.contents("proc/pressure/memory") == expected);
    CHECK(tree.contents("sys/fs/cgroup/a.slice/b.service/memory.pressure") == expected);
    CHECK(tree.contents("sys/fs/cgroup/memory.pressure").empty());
}

TEST_CASE("pressure triggers: the reason why there are none") {
    const PressureTree tree;
    CHECK(open_pressure_triggers(tree.path()).why_none ==
          std::string(tree.path()) + "/proc/pressure/memory: No such file or directory");
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
