// --exit-with-parent: a server that a test or a script started ends with it.
#pragma once

#include <sys/types.h>

namespace gpunbd::server {

// From now on the end of the parent is a SIGTERM for this process. For the main thread alone.
// `parent` is the parent when the program began; false: it has ended since.
bool end_with_parent(pid_t parent);

}  // namespace gpunbd::server
