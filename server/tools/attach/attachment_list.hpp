// `gpunbd attach --list`: what is attached, and by whom. There is no state but the kernel's.
#pragma once

#include <string>

namespace gpunbd::attach {

// `root`: where sys and proc are; another one is for tests.
std::string attachment_table(const std::string& root);
std::string attachment_json(const std::string& root);

}  // namespace gpunbd::attach
