// Starts a server for `gpunbd keep`: with the stored descriptors, and with the signal mask, limits
// and environment of the keeper's start.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "server/supervisor/stored_descriptors.hpp"

namespace gpunbd::server {

struct ServerStart {
    std::string program;
    std::vector<std::string> arguments;  // without the program's name
    std::string notify_address;
    sigset_t signals{};   // the blocked signals
    rlimit open_files{};  // before the keeper raised it
};

// Returns the process id, or -1 with errno. The process has a process group of its own and gets
// SIGTERM when this process dies. If the program cannot be run, it prints the reason and exits with
// status 127. The keeper itself does not call give_up_new_privileges(): that is inherited, and a
// server may have to run nvidia-modprobe before it calls it.
pid_t start_server(const ServerStart& start, StoredDescriptors& kept);

}  // namespace gpunbd::server
