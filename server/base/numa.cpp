#include "server/base/numa.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <spdlog/spdlog.h>

#include <fstream>

namespace gpunbd::server {

void stay_on_node(int node) {
    if (node < 0) return;
    // A list like "0-15,32-47".
    std::ifstream file(fmt::format("/sys/devices/system/node/node{}/cpulist", node));
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    unsigned first = 0;
    while (file >> first) {
        unsigned last = first;
        if (file.peek() == '-') file.ignore(1) >> last;
        for (unsigned cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &wanted);
        }
        file.ignore(1, ',');
    }
    if (CPU_COUNT(&wanted) != 0 && ::sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
        spdlog::warn("a worker cannot be bound to NUMA node {}", node);
    }
}

}  // namespace gpunbd::server
