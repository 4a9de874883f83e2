// `gpunbd top`
#pragma once

#include "config/command_line/command.hpp"
#include "server/tools/status/admin_server.hpp"

namespace gpunbd::tools {

class TopCommand final : public config::Command {
 public:
    TopCommand();
    int run(const config::Commands& all) override;

    status::ServerSelection server;
};

}  // namespace gpunbd::tools
