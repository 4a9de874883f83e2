// Why a file or a socket could not be made at a path, and what would be right: for Unix sockets and
// for the file of a process id alike.
#pragma once

#include <string>

namespace gpunbd::server {

std::string folder_of(const std::string& path);
// `error` is the errno of making `path`.
std::string create_error(const std::string& path, int error);
// What would go wrong if it were tried now, as far as can be told without; empty: nothing.
std::string cannot_create(const std::string& path);

}  // namespace gpunbd::server
