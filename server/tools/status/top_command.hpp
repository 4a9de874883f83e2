// `gpunbd top`: shows the activity of a server, updated every second, until a key or a signal ends
// it.
#pragma once

#include <string>
#include <vector>

#include "server/tools/status/admin_server.hpp"

namespace gpunbd::status {

// `folders`: the usual folders of server sockets. Returns the exit status. Throws
// std::system_error.
int run_top(const ServerSelection& server, const std::vector<std::string>& folders);

}  // namespace gpunbd::status
