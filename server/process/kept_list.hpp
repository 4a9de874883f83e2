// `gpunbd kept`: asks a server that runs what it keeps, or has it end some of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/command_line.hpp"

namespace gpunbd::server {

// `configured`: keeping.socket of the file, where one was given. What goes to standard output.
// Throws std::runtime_error where nobody answers, or the answer is an error.
std::string ask_what_is_kept(const config::KeptCommand& command,
                             const std::optional<std::string>& configured);
// The server's answer, for people. Throws std::runtime_error where it is none.
std::string kept_table(std::string_view json);

}  // namespace gpunbd::server
