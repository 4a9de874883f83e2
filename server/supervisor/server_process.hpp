// How `gpunbd keep` starts a server: with what is kept, and with the signals, limits and
// environment that it would have without a keeper.
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
    sigset_t signals{};   // that are blocked
    rlimit open_files{};  // as it was before the keeper raised it
};

// Its process id, or -1 and errno. It is in a process group of its own, and ends, as by SIGTERM,
// with this process. Where the program cannot be run, its exit status is 127, and it has said why.
pid_t start_server(const ServerStart& start, StoredDescriptors& kept);

}  // namespace gpunbd::server
