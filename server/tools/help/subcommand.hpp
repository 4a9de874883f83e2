// `gpunbd help`
#pragma once

#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class HelpCommand final : public config::Command {
 public:
    explicit HelpCommand(const config::Commands& others);
    int run(const config::Commands& all) override;

    std::string about;  // a command; empty: gpunbd itself
};

}  // namespace gpunbd::tools
