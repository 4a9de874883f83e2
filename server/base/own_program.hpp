// The path and the arguments that this program was started with.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::server {

// Returns the absolute path passed to exec. Restarts use it, so that an upgraded file is run.
// /proc/self/exe names the old file, and it resolves symbolic links, so a changed link would be
// missed. It is the fallback if the path does not lead to this program.
std::string own_program();
// The arguments, without the name of the program.
std::vector<std::string> own_arguments();

}  // namespace gpunbd::server
