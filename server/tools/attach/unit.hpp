// `gpunbd attach --systemd`: a unit that attaches a device at boot.
#pragma once

#include <string>

#include "server/tools/attach/attach_process.hpp"

namespace gpunbd::attach {

// `program`: the path of gpunbd. Returns the text of the unit, after a line with its path. The swap
// unit equals the package's gpunbd-swap@.service except for the device and the URI.
std::string systemd_unit(const AttachOptions& command, const std::string& program);

}  // namespace gpunbd::attach
