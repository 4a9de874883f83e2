// Marks threads as I/O flushers (PR_SET_IO_FLUSHER): the kernel does not start writeback to swap
// when they allocate memory.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

// For the calling thread and the threads that it starts later. Returns the problem and its remedy,
// if any.
std::optional<std::string> become_io_flusher();

}  // namespace gpunbd::server
