// What keeps a server alive that its own machine swaps to: all of it is needed, and what cannot be
// had is an error. server/PERFORMANCE.md, "Swap protections", has the measurements.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::server {

// Before any other thread is started, so that it holds for all, those of drivers included. What
// could not be had, and what helps; empty: the process is protected, once lock_all_memory() has
// been called as well.
std::vector<std::string> protect_process();

// What of it this process could not have. Changes nothing.
std::vector<std::string> what_cannot_protect();

// For the log: all of it, in one line.
std::string what_protects();

}  // namespace gpunbd::server
