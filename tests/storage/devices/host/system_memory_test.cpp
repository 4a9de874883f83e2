#include "storage/devices/host/system_memory.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

std::string bytes(std::uint64_t number) { return std::to_string(number) + "\n"; }

TEST_CASE("system memory: the minimum over the machine and its control groups") {
    const std::string outside = "12:cpu,cpuacct:/\n0::/system.slice/gpunbd.service\n";
    const std::string slice = "system.slice/memory.";
    const std::string service = "system.slice/gpunbd.service/memory.";
    const struct {
        const char* name;
        std::string groups;                                      // /proc/self/cgroup
        std::vector<std::pair<std::string, std::string>> files;  // in /sys/fs/cgroup: path, text
        std::uint64_t total, available;                          // MiB
    } rows[] = {
        {"no control groups", "", {}, 1024, 800},
        {"a group without a limit",
         outside,
         {{service + "max", "max\n"}, {service + "current", bytes(500 * mib)}},
         1024,
         800},
        {"a service's own limit (MemoryMax=)",
         outside,
         {{service + "max", bytes(300 * mib)}, {service + "current", bytes(100 * mib)}},
         300,
         200},
        {"the throttling limit (MemoryHigh=) counts as well",
         outside,
         {{service + "max", bytes(300 * mib)},
          {service + "high", bytes(250 * mib)},
          {service + "current", bytes(100 * mib)}},
         250,
         150},
        {"the slice has less memory left than the service",
         outside,
         {{slice + "max", bytes(600 * mib)},
          {slice + "current", bytes(550 * mib)},
          {service + "max", bytes(300 * mib)},
          {service + "current", bytes(100 * mib)}},
         300,
         50},
        {"cached files are dropped when memory is needed",
         outside,
         {{service + "max", bytes(300 * mib)},
          {service + "current", bytes(290 * mib)},
          {service + "stat", "anon 1000\ninactive_file " + bytes(200 * mib) + "active_file 7\n"}},
         300,
         210},
        {"over its limit",
         outside,
         {{service + "max", bytes(300 * mib)}, {service + "current", bytes(301 * mib)}},
         300,
         0},
        {"a container that sees its own group as the top",
         "0::/\n",
         {{"memory.max", bytes(300 * mib)}, {"memory.current", bytes(100 * mib)}},
         300,
         200},
        {"a container that sees its path outside of the container",
         "0::/docker/0123\n",
         {{"memory.max", bytes(300 * mib)}, {"memory.current", bytes(100 * mib)}},
         300,
         200},
        {"version 1",
         "4:memory:/a/b\n1:name=systemd:/x\n0::/\n",
         {{"memory/memory.limit_in_bytes", "9223372036854771712\n"},
          {"memory/a/memory.limit_in_bytes", bytes(400 * mib)},
          {"memory/a/memory.usage_in_bytes", bytes(250 * mib)},
          {"memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file " + bytes(50 * mib)},
          {"memory/a/b/memory.limit_in_bytes", bytes(350 * mib)},
          {"memory/a/b/memory.usage_in_bytes", bytes(100 * mib)}},
         350,
         200},
        {"version 1, memory beside another controller",
         "4:cpuset,memory:/a\n",
         {{"memory/a/memory.limit_in_bytes", bytes(400 * mib)},
          {"memory/a/memory.usage_in_bytes", bytes(250 * mib)}},
         400,
         150},
        {"both versions, memory in the second",
         "1:name=systemd:/x\n0::/a\n",
         {{"unified/a/memory.max", bytes(400 * mib)},
          {"unified/a/memory.current", bytes(250 * mib)}},
         400,
         150},
        {"lines of another format are ignored",
         "\n:\nmemory\n0::/a\n",
         {{"a/memory.max", bytes(400 * mib)}, {"a/memory.current", "?\n"}},
         400,
         400},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        const gpunbd::test::TemporaryFolder tree;  // a fake /proc and /sys
        tree.write(
            "proc/meminfo",
            "MemTotal:       1048576 kB\nMemFree:         1024 kB\nMemAvailable:   819200 kB\n");
        if (!row.groups.empty()) tree.write("proc/self/cgroup", row.groups);
        for (const auto& [path, text] : row.files) tree.write("sys/fs/cgroup/" + path, text);
        const SystemMemory memory(tree.path());
        CHECK(memory.total() == row.total * mib);
        CHECK(memory.available() == row.available * mib);
    }
}

TEST_CASE("system memory: limits change, and the process moves") {
    const gpunbd::test::TemporaryFolder tree;
    tree.write("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 819200 kB\n");
    tree.write("proc/self/cgroup", "0::/a\n");
    tree.write("sys/fs/cgroup/a/memory.max", bytes(300 * mib));
    tree.write("sys/fs/cgroup/b/memory.max", bytes(200 * mib));
    const SystemMemory memory(tree.path());
    CHECK(memory.total() == 300 * mib);
    tree.write("sys/fs/cgroup/a/memory.max", bytes(250 * mib));
    CHECK(memory.total() == 250 * mib);
    tree.write("proc/self/cgroup", "0::/b\n");
    CHECK(memory.total() == 200 * mib);
}

TEST_CASE("system memory: without readable files, no memory is available") {
    const SystemMemory memory("/nonexistent");
    CHECK(memory.total() == 0);
    CHECK(memory.available() == 0);
}

}  // namespace
}  // namespace gpunbd::storage::test
