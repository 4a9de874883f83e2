// A line of the log is a write(). To a file in a tmpfs it waits for that file's page, which may be
// swapped out: to the device that the process itself has to bring back.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>

namespace gpunbd::server {

// Empty: a write there does not wait for swap. Else: why it may, and what helps.
std::optional<std::string> why_log_may_hang(int descriptor = STDERR_FILENO);

}  // namespace gpunbd::server
