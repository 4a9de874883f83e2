// Finds the `gpunbd attach` process that maintains a device's connections, by its command line. The
// kernel records only the process that attached the device, which may have exited.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "server/tools/attach/device.hpp"

namespace gpunbd::attach {

struct Owner {
    pid_t process = 0;
    std::string uri;
};

// nullopt if no other process owns the device.
std::optional<Owner> owner_of(const Device& device);

}  // namespace gpunbd::attach
