// The file of this program, as whoever started it called it.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::server {

// Its path as it was given to exec, made absolute: what lies there is run when a server is started
// again, so that an upgrade is what runs next. /proc/self/exe would be the old file for ever, and
// what it points at misses an upgrade that turns a symbolic link. Where the path leads elsewhere
// already, or nowhere, that has to do.
std::string own_program();
// What it was called with, without its name.
std::vector<std::string> own_arguments();

}  // namespace gpunbd::server
