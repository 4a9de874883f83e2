// The `gpunbd attach` that keeps a device's connections alive, found by its command line: the
// kernel remembers only who attached the device, which may have ended since.
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

// Another process than this one; nothing: there is none.
std::optional<Owner> owner_of(const Device& device);

}  // namespace gpunbd::attach
