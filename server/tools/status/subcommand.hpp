#pragma once

#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/tools/status/admin_server.hpp"

namespace gpunbd::status {

// `gpunbd status`: prints the state of a server once, or each second.
struct StatusOptions {
    ServerSelection server;
    bool json = false;
    bool watch = false;
};

// `folders`: the usual folders of server sockets. Returns the exit status; with --watch only if the
// first request fails. Throws what fmt::print() throws.
int run_status(const StatusOptions& command, const std::vector<std::string>& folders);

}  // namespace gpunbd::status

namespace gpunbd::tools {

// `gpunbd status`
class StatusCommand final : public config::Command {
 public:
    StatusCommand();
    int run(const config::Commands& all) override;

    status::StatusOptions settings;
};

}  // namespace gpunbd::tools
