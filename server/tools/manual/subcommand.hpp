// `gpunbd manual`: completes the template of a manual page, for the build of gpunbd itself.
#pragma once

#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class ManualCommand final : public config::Command {
 public:
    ManualCommand();
    int run(const config::Commands& all) override;

    std::string path;  // of the template
};

}  // namespace gpunbd::tools
