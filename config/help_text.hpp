// What --help says. Written by hand, so that it reads the same whatever CLI11 formats; a test holds
// it against the flags that are taken and against gpunbd(8).
#pragma once

#include <string_view>

namespace gpunbd::config::help_text {

extern const std::string_view program;
extern const std::string_view serve;
extern const std::string_view devices;
extern const std::string_view check;

}  // namespace gpunbd::config::help_text
