// `gpunbd disconnect`
#pragma once

#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/tools/disconnect/disconnect.hpp"

namespace gpunbd::tools {

class DisconnectCommand final : public config::Command {
 public:
    DisconnectCommand();
    void store_arguments(const std::vector<std::string>& arguments) override;
    int run(const config::Commands& all) override;

    status::DisconnectOptions settings;
};

}  // namespace gpunbd::tools
