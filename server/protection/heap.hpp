// A heap that never asks the system for what it has had before: there may be nothing to be had.
#pragma once

namespace gpunbd::server {

// What is freed stays with the process. Before any other thread is started.
void never_shrink_heap();
// The calling thread has room for what its clients may need, from now on.
void grow_heap();

}  // namespace gpunbd::server
