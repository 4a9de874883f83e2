// The specification's names of numbers on the wire, for the log.
#pragma once

#include <string_view>

#include "protocol/constants.hpp"

namespace gpunbd::protocol {

std::string_view name_of(CommandType type);
std::string_view name_of(Error error);

}  // namespace gpunbd::protocol
