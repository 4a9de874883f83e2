// `gpunbd ping`
#pragma once

#include <cstdint>
#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class PingCommand final : public config::Command {
 public:
    PingCommand();
    int run(const config::Commands& all) override;

    std::string uri;
    bool json = false;
    std::uint64_t timeout = 5;  // seconds
};

}  // namespace gpunbd::tools
