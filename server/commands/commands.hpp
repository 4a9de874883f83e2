// The sub-commands of gpunbd.
#pragma once

#include "config/command_line/command.hpp"

namespace gpunbd::server {

// In the order in which the help lists them.
config::Commands all_commands();

}  // namespace gpunbd::server
