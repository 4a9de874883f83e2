// Exempts the server from the OOM killer. If it were killed, all swapped-out pages would be lost.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

// Also holds for child processes. Returns the problem and its remedy, if any.
std::optional<std::string> escape_oom_killer();

}  // namespace gpunbd::server
