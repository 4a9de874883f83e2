// The completion scripts of bash, zsh and fish.
#pragma once

#include <string>
#include <string_view>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

// `shell`: "bash", "zsh" or "fish".
std::string completion_script(std::string_view shell, const config::Commands& all);

}  // namespace gpunbd::tools
