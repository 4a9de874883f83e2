// The process group of --run's command. It is led by a watcher, a process that waits for our end:
// killed, we could neither end the command nor remove the folder of its socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// The parent-death signal would reach the shell alone, and no folder.
class CommandGroup {
 public:
    // Where this process ends and has not destroyed it, `directory` goes with the `socket` in it,
    // and the group gets SIGTERM and, two seconds later, SIGKILL. Throws std::runtime_error.
    CommandGroup(const std::string& directory, const std::string& socket);
    // Ends the watcher alone.
    ~CommandGroup();
    CommandGroup(const CommandGroup&) = delete;
    CommandGroup& operator=(const CommandGroup&) = delete;

    pid_t id() const { return watcher_; }
    // To all of the command; stopped processes, too, get it at once.
    void signal(int number) const;

 private:
    OwnedFd alive_;  // a pipe that our end closes
    pid_t watcher_ = -1;
};

}  // namespace gpunbd::server
