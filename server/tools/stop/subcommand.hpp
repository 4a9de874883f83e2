// `gpunbd stop`
#pragma once

#include "config/command_line/command.hpp"
#include "server/tools/stop/stop.hpp"

namespace gpunbd::tools {

class StopCommand final : public config::Command {
 public:
    StopCommand();
    int run(const config::Commands& all) override;

    status::StopOptions settings;
};

}  // namespace gpunbd::tools
