// Locks memory. A server that waits for one of its own swapped-out pages would deadlock the
// kernel's swap.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

// Locks the current mappings; their untouched pages are locked on first access. Returns the problem
// and its remedy, if any.
std::optional<std::string> lock_touched_memory();

// Raises RLIMIT_MEMLOCK to unlimited; otherwise a later allocation would fail. Returns the problem
// and its remedy, if any.
std::optional<std::string> lift_lock_limit();
// Locks and populates all current and future mappings. Returns the problem and its remedy, if any.
// Call it after the warm-up: memory that is mapped later is present at once, in small pages.
std::optional<std::string> lock_all_memory();

}  // namespace gpunbd::server
