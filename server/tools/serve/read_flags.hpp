// Converts the flags of `gpunbd serve` to checked options.
#pragma once

#include <vector>

#include "config/command_line/command.hpp"
#include "config/serve_command.hpp"
#include "server/tools/serve/given_flags.hpp"

namespace gpunbd::tools {

// Throws UsageError.
config::ServeCommand read_serve_flags(const config::Description& serve, const GivenFlags& given);

}  // namespace gpunbd::tools
