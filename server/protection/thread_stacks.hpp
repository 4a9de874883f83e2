// The size of thread stacks. Stacks are locked completely: 8 MiB each would use a large part of a
// small machine's memory.
#pragma once

#include <cstddef>

namespace gpunbd::server {

// A worker needs a tenth of it. Drivers start threads of their own.
inline constexpr std::size_t thread_stack = 1024 * 1024;  // bytes

// Sets the default of threads that are started later.
void make_thread_stacks_small();

}  // namespace gpunbd::server
