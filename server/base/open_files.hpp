// The limit of open files. Each kept slab and each connection needs a descriptor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::server {

// Raises the limit as far as permitted. The usual soft limit of 1024 exists for programs that use
// select(). Returns an error with its remedy if the limit stays below `needed`.
std::optional<std::string> raise_open_files(std::uint64_t needed);

}  // namespace gpunbd::server
