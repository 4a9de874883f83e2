// Where memory has run out, the kernel kills a process. Not this one: all that is swapped out would
// be lost.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

// Also for child processes. Else: why not, and what helps.
std::optional<std::string> escape_oom_killer();

}  // namespace gpunbd::server
