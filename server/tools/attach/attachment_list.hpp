// `gpunbd attach --list`: the attached devices and their owners. All information comes from the
// kernel; gpunbd stores no state.
#pragma once

#include <string>

namespace gpunbd::attach {

// `root`: the folder that contains sys and proc; tests pass another one.
std::string attachment_table(const std::string& root);
std::string attachment_json(const std::string& root);

}  // namespace gpunbd::attach
