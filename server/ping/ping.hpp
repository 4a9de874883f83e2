// `gpunbd ping`: does a server answer for an export? It shakes hands as a client does, up to what
// opening the export would tell, and takes no connection's place there.
#pragma once

#include <string>

#include "config/command_line.hpp"
#include "server/client/failure.hpp"

namespace gpunbd::server {

// One line for standard output; a failure: the export is not to be had.
Or<std::string> ping(const config::PingCommand& command);

}  // namespace gpunbd::server
