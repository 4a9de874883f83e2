// The limit of open files. Each kept slab and each connection needs a descriptor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::server {

// Raises the limit as far as permitted. The usual soft limit of 1024 exists for programs that use
// select(). Returns an error with its remedy if the limit stays below `needed`.
std::optional<std::string> raise_open_files(std::uint64_t needed);

// Adds the limit and the remedy to an error of a system call that has got no descriptor.
std::string with_open_files_limit(std::string error);

}  // namespace gpunbd::server
