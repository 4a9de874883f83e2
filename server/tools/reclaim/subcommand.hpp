// `gpunbd reclaim`
#pragma once

#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/tools/reclaim/reclaim_command.hpp"

namespace gpunbd::tools {

class ReclaimCommand final : public config::Command {
 public:
    ReclaimCommand();
    void store_arguments(const std::vector<std::string>& arguments) override;
    void check() override;
    int run(const config::Commands& all) override;

    status::ReclaimOptions settings;
};

}  // namespace gpunbd::tools
