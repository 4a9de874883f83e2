#include "storage/devices/host/system_memory.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpunbd::storage::test {
namespace {

using Files = std::vector<std::pair<const char*, std::string>>;  // path, text

std::string bytes(std::uint64_t number) { return std::to_string(number) + "\n"; }

const std::string outside = "12:cpu,cpuacct:/\n0::/system.slice/gpunbd.service\n";

TEST_CASE("system memory: the minimum over the machine and its control groups") {
    const struct {
        const char* name;
        Files files;
        std::uint64_t total, available;  // MiB
    } rows[] = {
        {"no control groups", {}, 1024, 800},
        {"a group without a limit",
         {{"proc/self/cgroup", outside},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.max", "max\n"},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.current", bytes(500 * mib)}},
         1024,
         800},
        {"a service's own limit (MemoryMax=)",
         {{"proc/self/cgroup", outside},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.max", bytes(300 * mib)},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.current", bytes(100 * mib)}},
         300,
         200},
        {"the throttling limit (MemoryHigh=) counts as well",
         {{"proc/self/cgroup", outside},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.max", bytes(300 * mib)},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.high", bytes(250 * mib)},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.current", bytes(100 * mib)}},
         250,
         150},
        {"the slice has less memory left than the service",
         {{"proc/self/cgroup", outside},
          {"sys/fs/cgroup/system.slice/memory.max", bytes(600 * mib)},
          {"sys/fs/cgroup/system.slice/memory.current", bytes(550 * mib)},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.max", bytes(300 * mib)},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.current", bytes(100 * mib)}},
         300,
         50},
        {"cached files are dropped when memory is needed",
         {{"proc/self/cgroup", outside},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.max", bytes(300 * mib)},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.current", bytes(290 * mib)},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.stat",
           "anon 1000\ninactive_file " + bytes(200 * mib) + "active_file 7\n"}},
         300,
         210},
        {"over its limit",
         {{"proc/self/cgroup", outside},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.max", bytes(300 * mib)},
          {"sys/fs/cgroup/system.slice/gpunbd.service/memory.current", bytes(301 * mib)}},
         300,
         0},
        {"a container that sees its own group as the top",
         {{"proc/self/cgroup", "0::/\n"},
          {"sys/fs/cgroup/memory.max", bytes(300 * mib)},
          {"sys/fs/cgroup/memory.current", bytes(100 * mib)}},
         300,
         200},
        {"a container that sees its path outside of the container",
         {{"proc/self/cgroup", "0::/docker/0123\n"},
          {"sys/fs/cgroup/memory.max", bytes(300 * mib)},
          {"sys/fs/cgroup/memory.current", bytes(100 * mib)}},
         300,
         200},
        {"version 1",
         {{"proc/self/cgroup", "4:memory:/a/b\n1:name=systemd:/x\n0::/\n"},
          {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
          {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", bytes(400 * mib)},
          {"sys/fs/cgroup/memory/a/memory.usage_in_bytes", bytes(250 * mib)},
          {"sys/fs/cgroup/memory/a/memory.stat",
           "inactive_file 1\ntotal_inactive_file " + bytes(50 * mib)},
          {"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", bytes(350 * mib)},
          {"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", bytes(100 * mib)}},
         350,
         200},
        {"version 1, memory beside another controller",
         {{"proc/self/cgroup", "4:cpuset,memory:/a\n"},
          {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", bytes(400 * mib)},
          {"sys/fs/cgroup/memory/a/memory.usage_in_bytes", bytes(250 * mib)}},
         400,
         150},
        {"both versions, memory in the second",
         {{"proc/self/cgroup", "1:name=systemd:/x\n0::/a\n"},
          {"sys/fs/cgroup/unified/a/memory.max", bytes(400 * mib)},
          {"sys/fs/cgroup/unified/a/memory.current", bytes(250 * mib)}},
         400,
         150},
        {"lines of another format are ignored",
         {{"proc/self/cgroup", "\n:\nmemory\n0::/a\n"},
          {"sys/fs/cgroup/a/memory.max", bytes(400 * mib)},
          {"sys/fs/cgroup/a/memory.current", "?\n"}},
         400,
         400},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        const gpunbd::test::TemporaryFolder tree;  // a fake /proc and /sys
        tree.write(
            "proc/meminfo",
            "MemTotal:       1048576 kB\nMemFree:         1024 kB\nMemAvailable:   819200 kB\n");
        for (const auto& [path, text] : row.files) tree.write(path, text);
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
