#include "server/base/privileges.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

namespace gpunbd::server {

void give_up_new_privileges() { ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }

// Slabs, staging memory, receive buffers and stacks contain the data of clients, so no memory is
// dumped. PR_SET_DUMPABLE is not used: it would also hide /proc/PID from the server's own user,
// where `gpunbd check` and other programs look for the holder of a port.
void keep_memory_out_of_core_dumps() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_CORE, &limit) == 0) {
        // 1, not 0: with 0 the kernel would still pass a dump with registers to a collector.
        limit.rlim_cur = std::min<rlim_t>(1, limit.rlim_max);
        ::setrlimit(RLIMIT_CORE, &limit);
    }
    std::ofstream("/proc/self/coredump_filter") << "0\n";
}

}  // namespace gpunbd::server
