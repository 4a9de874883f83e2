// Error messages, with remedies, for failures to create a file or a socket.
#pragma once

#include <string>

namespace gpunbd::server {

std::string folder_of(const std::string& path);
// `error` is the errno of creating `path`.
std::string create_error(const std::string& path, int error);
// Returns the error that creating `path` would probably give now. Empty: none. Creates nothing.
std::string cannot_create(const std::string& path);

}  // namespace gpunbd::server
