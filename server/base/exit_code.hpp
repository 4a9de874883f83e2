// Exit codes, as in gpunbd(8).
#pragma once

namespace gpunbd::server {

inline constexpr int exit_failure = 1;
// Wrong usage or an invalid configuration. Supervisors do not restart the server, because it would
// fail again.
inline constexpr int exit_usage = 2;

}  // namespace gpunbd::server
