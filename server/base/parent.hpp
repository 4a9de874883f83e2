// --exit-with-parent: the server ends with the test or script that started it.
#pragma once

#include <sys/types.h>

namespace gpunbd::server {

// This process gets SIGTERM when the parent ends. Call it on the main thread. `parent` is the
// parent at the start of the program. Returns false if that process has ended since.
bool end_with_parent(pid_t parent);

}  // namespace gpunbd::server
