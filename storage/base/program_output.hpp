// Runs a program for its output.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpunbd::storage {

// The first 64 KiB that the program prints to its standard output; nullopt if it cannot be run, or
// fails. `command`: the program, found in PATH, and its arguments. Blocks until the program ends.
// It runs with all signals blocked, because a supervisor that ends this process may send SIGTERM to
// all processes of the service.
std::optional<std::string> output_of(std::vector<std::string> command);

}  // namespace gpunbd::storage
