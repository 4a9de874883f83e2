// `gpunbd keep`: stores the descriptors of a server, restarts the server when it dies, and hands
// the descriptors over. It does not depend on exports, so it rarely has to change.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gpunbd::server {

struct SupervisorLimits {
    std::size_t restarts;
    std::chrono::seconds within;  // the period of `restarts`
    std::size_t descriptors;
    bool swap;  // the machine swaps to an export of the server
};

// Runs the server with these arguments until it is not restarted any more. Returns the exit code of
// the last server. Calls `on_ready`, which may be empty, when the first server is ready.
int keep(const SupervisorLimits& limits, std::vector<std::string> arguments,
         std::function<void()> on_ready);

}  // namespace gpunbd::server
