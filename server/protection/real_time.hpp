// Real-time priority: who writes what memory is freed for has to run at once when there is none.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

inline constexpr int real_time_priority = 5;  // of SCHED_FIFO: before all that is usual

// The calling thread, and those that it starts from now on. Else: why not, and what helps.
std::optional<std::string> run_in_real_time();
// The calling thread, and not the processes that it starts.
std::optional<std::string> run_alone_in_real_time();

}  // namespace gpunbd::server
