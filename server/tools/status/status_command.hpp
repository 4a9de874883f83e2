// `gpunbd status`: prints once, or each second, what a server tells of itself.
#pragma once

#include <string>
#include <vector>

#include "server/tools/status/server_selection.hpp"

namespace gpunbd::status {

struct StatusOptions {
    ServerSelection server;
    bool json = false;
    bool watch = false;
};

// The folders are those where sockets of servers usually are. The exit status; with --watch it
// returns only where no server answered at first. Throws what fmt::print() does.
int run_status(const StatusOptions& command, const std::vector<std::string>& folders);

}  // namespace gpunbd::status
