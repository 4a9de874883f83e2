// `gpunbd completion`
#pragma once

#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class CompletionCommand final : public config::Command {
 public:
    CompletionCommand();
    int run(const config::Commands& all) override;

    std::string shell;
};

}  // namespace gpunbd::tools
