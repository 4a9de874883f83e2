#include "server/base/parent.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace gpunbd::server {

bool end_with_parent(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    // The parent may have ended before the prctl().
    return ::getppid() == parent;
}

}  // namespace gpunbd::server
