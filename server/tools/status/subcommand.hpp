// `gpunbd status`
#pragma once

#include "config/command_line/command.hpp"
#include "server/tools/status/status_command.hpp"

namespace gpunbd::tools {

class StatusCommand final : public config::Command {
 public:
    StatusCommand();
    int run(const config::Commands& all) override;

    status::StatusOptions settings;
};

}  // namespace gpunbd::tools
