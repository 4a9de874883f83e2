// Stacks of threads, which are locked in full: 8 MiB each would be a large part of a small machine.
#pragma once

#include <cstddef>

namespace gpunbd::server {

// A worker needs a tenth of it; drivers start threads of their own.
inline constexpr std::size_t thread_stack = 1024 * 1024;  // bytes

// Of threads that are started from now on, and do not say otherwise.
void make_thread_stacks_small();

}  // namespace gpunbd::server
