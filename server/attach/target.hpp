// What an NBD URI names: a server that the kernel's client can be connected to, and one of its
// exports.
#pragma once

#include <string>
#include <string_view>

#include "server/attach/failure.hpp"

namespace gpunbd::attach {

struct Target {
    std::string host;  // or the path of a Unix socket, where there is no port
    std::string port;
    std::string name;  // of the export
};

Or<Target> parse_target(std::string_view uri);

}  // namespace gpunbd::attach
