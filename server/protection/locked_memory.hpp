// Memory that is never written to swap: who waits for a page of its own, while memory is short,
// keeps everybody waiting who waits for it.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

// Each page that this process has touched, or will, of what it has mapped so far. Else: why not,
// and what helps.
std::optional<std::string> lock_touched_memory();

// May all memory be locked, also what is yet to come? A limit would make a later allocation fail.
std::optional<std::string> lift_lock_limit();
// All that is mapped, or will be: it is there at once.
std::optional<std::string> lock_all_memory();

}  // namespace gpunbd::server
