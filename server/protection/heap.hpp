// Configures malloc to never return memory to the system, because it may not be available again.
#pragma once

namespace gpunbd::server {

// Freed memory stays in the heap. Call it before other threads start.
void never_shrink_heap();
// Reserves heap memory for the clients of the calling thread.
void grow_heap();

}  // namespace gpunbd::server
