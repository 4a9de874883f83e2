// Parses the command line: selects the sub-command and stores its flags and arguments.
#pragma once

#include <optional>
#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::config {

// Either `command` is set and must be run, or `exit_code` is set. In the second case, print
// `message`, which includes the newline, to standard output (exit code 0) or standard error (2:
// wrong usage).
struct Parsed {
    Command* command = nullptr;
    std::optional<int> exit_code;
    std::string message;
    bool as_json = false;  // the message is for --json: without a newline and the name of gpunbd
};

Parsed parse(const Commands& commands, int argc, const char* const* argv);

}  // namespace gpunbd::config
