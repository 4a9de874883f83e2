// The output of --version, and with --verbose also the build, the libraries and the paths of
// installed files. The build generates all values.
#pragma once

#include <string>

namespace gpunbd::config {

std::string version();        // "1.2.3"
std::string commit();         // empty: not known
std::string build_summary();  // "Release, CUDA 12.4", "Release, without CUDA"
std::string version_text();   // one line
std::string build_text();

}  // namespace gpunbd::config
