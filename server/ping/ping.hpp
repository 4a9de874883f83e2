// `gpunbd ping`: does a server answer for an export? It shakes hands as a client does, up to what
// opening the export would tell, and takes no connection's place there.
#pragma once

#include <string>

#include "config/command_line.hpp"

namespace gpunbd::server {

// One line for standard output. Throws std::runtime_error where the export is not to be had.
std::string ping(const config::PingCommand& command);

}  // namespace gpunbd::server
