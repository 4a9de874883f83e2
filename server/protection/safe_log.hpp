// A write() to a log file in a tmpfs waits for the page of that file. The page may be swapped out
// to the device that this process serves.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>

namespace gpunbd::server {

// Empty: writing to `descriptor` does not wait for swap. Otherwise the problem and its remedy.
std::optional<std::string> why_log_may_hang(int descriptor = STDERR_FILENO);

}  // namespace gpunbd::server
