// The completions of bash, zsh and fish, made from the table of flags.
#pragma once

#include <string>
#include <string_view>

namespace gpunbd::config {

std::string completion_script(std::string_view shell);  // "bash", "zsh" or "fish"

}  // namespace gpunbd::config
