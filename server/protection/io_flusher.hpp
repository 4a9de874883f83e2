// What the kernel allocates for an I/O flusher it never takes from what that has to write itself.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

// The calling thread, and those that it starts from now on. Else: why not, and what helps.
std::optional<std::string> become_io_flusher();

}  // namespace gpunbd::server
