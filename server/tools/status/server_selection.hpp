// Which server `status` and `top` ask: at a socket or a URL, or the only one that can be found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::status {

struct ServerSelection {
    struct Url {
        std::string host;
        std::string port;
    };
    std::optional<std::string> socket = {};
    std::optional<Url> url = {};
    std::optional<std::string> token = {};  // with `url`: a file
};

// The flags that select a server, and `more`.
std::vector<config::Flag> server_flags(ServerSelection& server, std::vector<config::Flag> more);
// Throws UsageError if the flags contradict each other.
void check_selection(const ServerSelection& server);

}  // namespace gpunbd::status
