// `gpunbd attach --systemd`: the units that attach a device at each start of the machine.
#pragma once

#include <string>

#include "config/command_line.hpp"

namespace gpunbd::attach {

// `program`: the path of gpunbd. The text of each file, behind a line with its path.
std::string systemd_units(const config::AttachCommand& command, const std::string& program);

}  // namespace gpunbd::attach
