// One message of a supervised process (sd_notify(3), sd_pid_notify_with_fds(3)), parsed.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace gpunbd::server {

// An extension of this project: the message carries the read end of an ExitPipe.
inline constexpr std::string_view exit_pipe_line = "X_GPUNBD_LIFELINE=1";

struct Notice {
    bool store = false;          // FDSTORE=1
    bool remove = false;         // FDSTOREREMOVE=1
    bool ready = false;          // READY=1
    bool stopping = false;       // STOPPING=1
    bool exit_pipe = false;      // exit_pipe_line
    std::string_view name = {};  // FDNAME=
    pid_t main_pid = 0;          // MAINPID=; -1: not a process id
};

// `text` outlives the result. Unknown lines are ignored.
Notice read_notice(std::string_view text);

// The lines to forward to the supervisor of the keeper.
std::string to_pass_on(std::string_view text);

}  // namespace gpunbd::server
