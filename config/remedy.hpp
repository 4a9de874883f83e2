// What is said about an argument that nothing takes: what it was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/flags.hpp"

namespace gpunbd::config {

using Arguments = std::vector<std::string>;

// All of these know the whole line, less the program's name, and the command that it gives.
std::string about_unknown_flag(const Command& given, const Arguments& line, std::string_view text);
std::string about_stray_word(const Command& given, const Arguments& line, std::string_view word);

// The first flag of `line` that the parser would not take as it was meant: --size --device host,
// --readonly=no, -port. Empty: there is none.
std::string about_misread_flag(const Command& given, const Arguments& line);

}  // namespace gpunbd::config
