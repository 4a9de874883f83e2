// Real-time priority. The process that writes swapped-out pages must run immediately when memory is
// short.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

inline constexpr int real_time_priority = 5;  // of SCHED_FIFO: above all normal threads

// For the calling thread and the threads that it starts later. Returns the problem and its remedy,
// if any.
std::optional<std::string> run_in_real_time();
// For the calling thread, not for its child processes.
std::optional<std::string> run_alone_in_real_time();

}  // namespace gpunbd::server
