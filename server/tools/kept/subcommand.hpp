// `gpunbd kept`
#pragma once

#include <optional>
#include <string>

#include "config/command_line/command.hpp"
#include "server/tools/kept/kept_command.hpp"

namespace gpunbd::tools {

class KeptCommand final : public config::Command {
 public:
    KeptCommand();
    void check() override;
    int run(const config::Commands& all) override;

    std::optional<std::string> config_file;
    status::KeptOptions settings;
};

}  // namespace gpunbd::tools
