// Numbers of the wire by the names that the specification has for them, for the log.
#pragma once

#include <string_view>

#include "protocol/constants.hpp"

namespace gpunbd::protocol {

std::string_view name_of(CommandType type);
std::string_view name_of(Error error);

}  // namespace gpunbd::protocol
