// `gpunbd attach --systemd`: the unit that attaches a device at each start of the machine.
#pragma once

#include <string>

#include "server/tools/attach/attach_options.hpp"

namespace gpunbd::attach {

// `program`: the path of gpunbd. The file's text, behind a line with its path. The one for swap is,
// for another device and URI, the package's gpunbd-swap@.service.
std::string systemd_unit(const AttachOptions& command, const std::string& program);

}  // namespace gpunbd::attach
