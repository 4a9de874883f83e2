// What --help says: the table of flags, in the same form for every command and 80 columns wide.
#pragma once

#include <string>

#include "config/flags.hpp"

namespace gpunbd::config {

std::string help_text(const Command& command);

}  // namespace gpunbd::config
