// `gpunbd offer`: prints what the completions of shells offer, one word per line.
#pragma once

#include <string>

#include "config/command_line/command.hpp"
#include "server/tools/status/admin_server.hpp"

namespace gpunbd::tools {

class OfferCommand final : public config::Command {
 public:
    OfferCommand();
    int run(const config::Commands& all) override;

    std::string what;
    status::ServerSelection server;
};

}  // namespace gpunbd::tools
