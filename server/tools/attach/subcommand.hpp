// `gpunbd attach`
#pragma once

#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/tools/attach/attach_process.hpp"

namespace gpunbd::tools {

class AttachCommand final : public config::Command {
 public:
    AttachCommand();
    void store_arguments(const std::vector<std::string>& arguments) override;
    int run(const config::Commands& all) override;

    attach::AttachOptions settings;
    bool list = false;  // with `json`: list only
    bool json = false;
};

}  // namespace gpunbd::tools
