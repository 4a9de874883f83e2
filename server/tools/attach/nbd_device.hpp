// The names of the kernel's NBD devices.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/rules.hpp"

namespace gpunbd::attach {

// The N of /dev/nbdN.
config::rules::Checked<std::uint32_t> nbd_device(std::string_view text);

}  // namespace gpunbd::attach
