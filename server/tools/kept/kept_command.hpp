// `gpunbd kept`: lists what a server that runs keeps, or has it give some of it up.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/client/failure.hpp"

namespace gpunbd::status {

struct KeptOptions {
    std::optional<std::string> socket = {};
    bool json = false;
    std::optional<std::string> drop = {};  // a name of contents
};

// `configured`: the socket that the file names, where one was given. `folders`: where sockets of
// servers usually are. The exit status. Throws what fmt::print() does.
int run_kept(const KeptOptions& command, const std::optional<std::string>& configured,
             const std::vector<std::string>& folders);
// The server's answer as a table.
Or<std::string> kept_table(std::string_view json);

}  // namespace gpunbd::status
