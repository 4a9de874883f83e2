// What --version says, and with --verbose: what the program was built with, and where its files
// are. Nothing of it is written by hand.
#pragma once

#include <string>

namespace gpunbd::config {

std::string version();        // "1.2.3"
std::string commit();         // empty: not known
std::string build_summary();  // "Release, CUDA 12.4", "Release, without CUDA"
std::string version_text();   // one line
std::string build_text();

}  // namespace gpunbd::config
