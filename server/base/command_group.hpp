// The process group of --run's command. A watcher process leads the group and waits for the end of
// this process. If this process is killed, the watcher ends the command and removes the socket's
// folder.
#pragma once

#include <sys/types.h>

#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// A parent-death signal would reach only the shell of the command, and would leave the folder.
class CommandGroup {
 public:
    // If this process dies without destroying the object, the watcher removes `directory` and
    // `socket` and sends the group SIGTERM and, after two seconds, SIGKILL. Throws
    // std::runtime_error.
    CommandGroup(const std::string& directory, const std::string& socket);
    // Ends only the watcher.
    ~CommandGroup();
    CommandGroup(const CommandGroup&) = delete;
    CommandGroup& operator=(const CommandGroup&) = delete;

    pid_t id() const { return watcher_; }
    // Signals all processes of the command. Stopped processes are continued, so that they handle
    // it.
    void signal(int number) const;

 private:
    OwnedFd alive_;  // write end of a pipe; the watcher acts when it is closed
    pid_t watcher_ = -1;
};

}  // namespace gpunbd::server
