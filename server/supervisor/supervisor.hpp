// `gpunbd keep`: a process that keeps what a server holds by descriptors, starts the server again
// when it dies, and hands it all over. It knows nothing of exports, and hardly ever needs to
// change.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gpunbd::server {

struct SupervisorLimits {
    std::size_t restarts;
    std::chrono::seconds within;  // that time
    std::size_t descriptors;
    bool swap;  // the machine swaps to what the server serves
};

// Runs this program with these arguments, again and again; its exit code is that of the last one.
// Calls `on_ready`, which may be empty, when the first server is ready.
int keep(const SupervisorLimits& limits, std::vector<std::string> arguments,
         std::function<void()> on_ready);

}  // namespace gpunbd::server
