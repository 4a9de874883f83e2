// The server for `status` and `top`: at a socket or a URL, or the only one that runs.
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

// Returns `more` and the flags that select a server.
std::vector<config::Flag> server_flags(ServerSelection& server, std::vector<config::Flag> more);

}  // namespace gpunbd::status
