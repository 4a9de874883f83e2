// The command line: finds the sub-command and stores its flags and arguments.
#pragma once

#include <optional>
#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::config {

// Either `command` is to be run, or `exit_code` is set: then `message`, newline included, goes to
// standard output (exit_code 0: help or version) or to standard error (2: wrong usage).
struct Parsed {
    Command* command = nullptr;
    std::optional<int> exit_code;
    std::string message;
};

Parsed parse(const Commands& commands, int argc, const char* const* argv);

}  // namespace gpunbd::config
