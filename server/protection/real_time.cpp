#include "server/protection/real_time.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "server/protection/resource_limit.hpp"

namespace gpunbd::server {

namespace {

std::optional<std::string> run_by(int policy) {
    lift_limit(RLIMIT_RTPRIO);
    const sched_param parameters{.sched_priority = real_time_priority};
    if (::sched_setscheduler(0, policy, &parameters) != 0) {
        return fmt::format(
            "its threads cannot have real-time priority (SCHED_FIFO {}: {}); give it CAP_SYS_NICE "
            "(AmbientCapabilities= of systemd, --cap-add SYS_NICE of Docker), or set "
            "LimitRTPRIO={} (systemd), --ulimit rtprio={} (Docker) or ulimit -r {} (a shell)",
            real_time_priority, std::strerror(errno), real_time_priority, real_time_priority,
            real_time_priority);
    }
    if (lift_limit(RLIMIT_RTTIME)) return std::nullopt;
    return "it would be killed after the limit of real-time CPU time (RLIMIT_RTTIME); set "
           "LimitRTTIME=infinity (systemd), --ulimit rttime=-1 (Docker) or ulimit -R unlimited (a "
           "shell)";
}

}  // namespace

std::optional<std::string> run_in_real_time() { return run_by(SCHED_FIFO); }

std::optional<std::string> run_alone_in_real_time() {
    return run_by(SCHED_FIFO | SCHED_RESET_ON_FORK);
}

}  // namespace gpunbd::server
