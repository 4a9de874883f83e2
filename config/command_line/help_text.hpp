// The text of --help, in the same form for every command and 80 columns wide.
#pragma once

#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::config {

std::string help_text(const Description& command, const Commands& all);

}  // namespace gpunbd::config
