// The protections of a server that its own machine swaps to. All of them are required; a protection
// that is not available is an error. server/PERFORMANCE.md, "Swap protections", has the
// measurements.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::server {

// Call it before other threads start, so that it also holds for the threads of drivers. Returns the
// problems and their remedies. If there are none, lock_all_memory() completes the protection.
std::vector<std::string> protect_process();

// Returns the protections that are not available. Does not change this process.
std::vector<std::string> missing_protections();

// For the log: all protections, in one line.
std::string protection_summary();

}  // namespace gpunbd::server
