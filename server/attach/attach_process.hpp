// `gpunbd attach`: attaches a device, and stays until it is detached. And `gpunbd detach`.
#pragma once

#include "config/command_line.hpp"

namespace gpunbd::attach {

// Each gives the exit status; what went wrong stands on standard error. With --systemd it only
// prints.
int run_attach(const config::AttachCommand& command);
int run_detach(const config::DetachCommand& command);

}  // namespace gpunbd::attach
