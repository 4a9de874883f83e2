#include "storage/base/control_groups.hpp"

#include <sched.h>

#include <filesystem>

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

namespace fs = std::filesystem;

// The usable CPUs of a thread that is bound to `cpus` CPUs. The kernel keeps the others if there
// are fewer.
unsigned usable_on(unsigned cpus, const fs::path& root) {
    unsigned usable = 0;
    std::thread([&] {
        cpu_set_t bound;
        REQUIRE(::sched_getaffinity(0, sizeof bound, &bound) == 0);
        unsigned left = cpus;
        for (int cpu = 0; cpu != CPU_SETSIZE; ++cpu) {
            if (!CPU_ISSET(cpu, &bound)) continue;
            if (left == 0) CPU_CLR(cpu, &bound);
            if (left != 0) --left;
        }
        REQUIRE(::sched_setaffinity(0, sizeof bound, &bound) == 0);
        usable = usable_cpus(root);
    }).join();
    return usable;
}

TEST_CASE("usable CPUs: the minimum of the affinity and the quotas of all control groups") {
    const char* const version_1 = "4:cpu,cpuacct:/slice/service\n5:memory:/\n";
    const char* const version_2 = "0::/slice/service\n";
    const struct {
        const char* name;
        const char* groups;
        std::vector<std::pair<const char*, const char*>> files;  // below /sys/fs/cgroup
        unsigned cpus;                                           // as quotas permit
    } rows[] = {
        {"no control group", "", {}, 1024},
        {"no quota", version_2, {{"slice/service/cpu.max", "max 100000\n"}}, 1024},
        {"a quota", version_2, {{"slice/service/cpu.max", "100000 100000\n"}}, 1},
        {"half a CPU", version_2, {{"slice/service/cpu.max", "50000 100000\n"}}, 1},
        {"of the parent",
         version_2,
         {{"slice/service/cpu.max", "max 100000\n"}, {"slice/cpu.max", "30000 20000\n"}},
         2},
        {"of a container", version_2, {{"cpu.max", "100000 100000\n"}}, 1},
        {"version 1, no quota",
         version_1,
         {{"cpu/slice/service/cpu.cfs_quota_us", "-1\n"},
          {"cpu/slice/service/cpu.cfs_period_us", "100000\n"}},
         1024},
        {"version 1",
         version_1,
         {{"cpu/slice/service/cpu.cfs_quota_us", "50000\n"},
          {"cpu/slice/service/cpu.cfs_period_us", "100000\n"}},
         1},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        const gpunbd::test::TemporaryFolder root;
        root.write("proc/self/cgroup", row.groups);
        for (const auto& [name, text] : row.files) {
            root.write("sys/fs/cgroup/" + std::string(name), text);
        }
        const unsigned all = usable_on(1024, "/nowhere");
        CHECK(usable_on(1024, root.path()) == std::min(all, row.cpus));
        CHECK(usable_on(1, root.path()) == 1);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
