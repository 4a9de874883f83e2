// What --version says, and with --verbose: what the program was built with, and where its files
// are. Nothing of it is written by hand.
#pragma once

#include <string>

namespace gpunbd::config {

std::string version_text();  // one line
std::string build_text();

}  // namespace gpunbd::config
