// One message of a supervised process, as sd_notify(3) and sd_pid_notify_with_fds(3) have it: its
// lines, read once.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace gpunbd::server {

// Of this project: a descriptor comes with it, of a pipe that is cut when the process ends.
inline constexpr std::string_view lifeline_line = "X_GPUNBD_LIFELINE=1";

struct Notice {
    bool store = false;          // FDSTORE=1
    bool remove = false;         // FDSTOREREMOVE=1
    bool ready = false;          // READY=1
    bool stopping = false;       // STOPPING=1
    bool lifeline = false;       // lifeline_line
    std::string_view name = {};  // FDNAME=
    pid_t main_pid = 0;          // MAINPID=; -1: what is said is none
};

// `text` outlives it. Lines that are not known are nobody's.
Notice read_notice(std::string_view text);

// The lines that are also for a supervisor's own supervisor.
std::string to_pass_on(std::string_view text);

}  // namespace gpunbd::server
