// Exit codes, as in gpunbd(8).
#pragma once

namespace gpunbd::server {

inline constexpr int exit_failure = 1;
// Wrong usage, or a configuration with problems: who starts servers again does not start this one,
// which would end in the same way.
inline constexpr int exit_usage = 2;

}  // namespace gpunbd::server
