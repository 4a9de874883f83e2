// How many descriptors this process may have: slabs that are kept and connections take one each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::server {

// Lifts the limit as far as it goes; the usual soft limit of 1024 is there for programs that use
// select(). One line that says what to do where `needed` are still too many.
std::optional<std::string> raise_open_files(std::uint64_t needed);

}  // namespace gpunbd::server
