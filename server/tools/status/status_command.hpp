// `gpunbd status`: prints the state of a server once, or each second.
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

// `folders`: the usual folders of server sockets. Returns the exit status; with --watch only if the
// first request fails. Throws what fmt::print() throws.
int run_status(const StatusOptions& command, const std::vector<std::string>& folders);

}  // namespace gpunbd::status
