// The generated parts of the manual pages and of the description of the API.
#pragma once

#include <istream>
#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

// Replaces these lines of a page, in mdoc:
//   @KEYS name...     the entries of these top-level configuration keys and of all below them
//   @FLAGS title      the entries of the flags of serve in the group of this title
//   @COMMAND_FLAGS    a subsection with the flags of each other command, and of gpunbd itself
//   @SYNOPSIS         the synopsis of every sub-command
//   @COMMANDS         the entry of every sub-command
//   @METRICS          the entry of every metric
//   @SCHEMAS          the schemas of a status, in YAML
// Throws std::runtime_error for an unknown name.
std::string manual_page(std::istream& page, const config::Commands& all);

}  // namespace gpunbd::tools
