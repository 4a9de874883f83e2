// The flags of `gpunbd serve`.
#pragma once

#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

std::vector<config::FlagGroup> serve_flags();

}  // namespace gpunbd::tools
