// Formats the text of --help, the same way for all commands, in 80 columns.
#pragma once

#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::config {

std::string help_text(const Description& command, const Commands& all);
// Of one action of the command, with only its flags.
std::string help_text(const Description& command, const Action& action);

}  // namespace gpunbd::config
