#include "storage/base/usable_cpus.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "storage/base/control_groups.hpp"

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

constexpr double no_limit = std::numeric_limits<double>::infinity();

unsigned bound_to() {
    cpu_set_t cpus;
    // Fails on machines with more CPUs than the type has.
    if (::sched_getaffinity(0, sizeof cpus, &cpus) != 0) return std::thread::hardware_concurrency();
    return static_cast<unsigned>(CPU_COUNT(&cpus));
}

double quota_of(const ControlGroup& group) {
    double quota = 0;
    double period = 0;
    if (group.version == ControlGroup::Version::two) {
        std::ifstream(group.folder / "cpu.max") >> quota >> period;
    } else {
        std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;
        std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
    }
    // Without a limit, the files have "max" or -1.
    return quota > 0 && period > 0 ? quota / period : no_limit;
}

}  // namespace

unsigned usable_cpus(const fs::path& root) {
    double cpus = std::max(1U, bound_to());
    for (const ControlGroup& group : control_groups(root, "cpu")) {
        cpus = std::min(cpus, quota_of(group));
    }
    return static_cast<unsigned>(std::ceil(cpus));
}

unsigned usable_cpus() {
    static const unsigned cpus = usable_cpus("/");
    return cpus;
}

}  // namespace gpunbd::storage
