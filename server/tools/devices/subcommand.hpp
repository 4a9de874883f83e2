// `gpunbd devices`
#pragma once

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class DevicesCommand final : public config::Command {
 public:
    DevicesCommand();
    int run(const config::Commands& all) override;

    bool calibrate = false;
    bool json = false;
};

}  // namespace gpunbd::tools
