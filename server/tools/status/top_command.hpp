// `gpunbd top`: a page of what a server does, new each second, until a key or a signal ends it.
#pragma once

#include <string>
#include <vector>

#include "server/tools/status/server_selection.hpp"

namespace gpunbd::status {

// The folders are those where sockets of servers usually are. The exit status. Throws
// std::system_error.
int run_top(const ServerSelection& server, const std::vector<std::string>& folders);

}  // namespace gpunbd::status
