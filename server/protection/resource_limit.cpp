#include "server/protection/resource_limit.hpp"

#include <sys/resource.h>

namespace gpunbd::server {

bool lift_limit(int resource) {
    const auto which = static_cast<__rlimit_resource>(resource);
    const rlimit none{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (::setrlimit(which, &none) == 0) return true;
    rlimit limit{};
    if (::getrlimit(which, &limit) != 0) return false;
    limit.rlim_cur = limit.rlim_max;
    return ::setrlimit(which, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

}  // namespace gpunbd::server
