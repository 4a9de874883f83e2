// `gpunbd attach`: attaches a device, and stays until it is detached. And `gpunbd detach`.
#pragma once

#include "server/tools/attach/attach_options.hpp"

namespace gpunbd::attach {

// Each gives the exit status; what went wrong stands on standard error. With --systemd it only
// prints.
int run_attach(const AttachOptions& command);
int run_detach(std::uint32_t number, bool force);

}  // namespace gpunbd::attach
