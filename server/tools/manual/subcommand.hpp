#pragma once

#include <istream>
#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

// The generated parts of the manual pages and of the description of the API.

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

// `gpunbd manual`: completes the template of a manual page, for the build of gpunbd itself.
class ManualCommand final : public config::Command {
 public:
    ManualCommand();
    int run(const config::Commands& all) override;

    std::string path;  // of the template
};

}  // namespace gpunbd::tools
