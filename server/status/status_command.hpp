// `gpunbd status`: prints once, or each second, what a server tells of itself.
#pragma once

#include <string>
#include <vector>

#include "config/command_line.hpp"

namespace gpunbd::status {

// The folders are those where sockets of servers usually are. The exit status; with --watch it
// returns only where no server answered at first. Throws what fmt::print() does.
int run_status(const config::StatusCommand& command, const std::vector<std::string>& folders);

}  // namespace gpunbd::status
