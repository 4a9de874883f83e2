// Runs a server until a signal ends it.
#pragma once

#include <sys/types.h>

#include "config/serve_command.hpp"

namespace gpunbd::tools {

// `parent`: the process that started this one. Returns the exit code.
int serve(const config::ServeCommand& command, pid_t parent);

}  // namespace gpunbd::tools
