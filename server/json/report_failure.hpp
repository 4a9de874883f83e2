// The failure of a command, on one line: as text, or as an object for programs.
#pragma once

#include <string_view>

namespace gpunbd::server {

// With `json`, prints {"error": TEXT} to standard output; otherwise "gpunbd COMMAND: TEXT" to
// standard error. Returns `exit_code`.
int report_failure(std::string_view command, std::string_view text, bool json, int exit_code);

}  // namespace gpunbd::server
