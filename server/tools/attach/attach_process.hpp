// `gpunbd attach`, which attaches a device and stays until it is detached, and `gpunbd detach`.
#pragma once

#include "server/tools/attach/attach_options.hpp"

namespace gpunbd::attach {

// Both return the exit status and print errors to standard error. With --systemd, run_attach() only
// prints the unit.
int run_attach(const AttachOptions& command);
int run_detach(std::uint32_t number, bool force);

}  // namespace gpunbd::attach
