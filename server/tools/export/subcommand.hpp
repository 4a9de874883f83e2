// `gpunbd export`: its flags and its help.
#pragma once

#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/tools/export/export_command.hpp"

namespace gpunbd::tools {

class ExportCommand final : public config::Command {
 public:
    ExportCommand();
    void store_arguments(const std::vector<std::string>& arguments) override;
    void check() override;
    int run(const config::Commands& all) override;

    status::ExportRequest settings;
};

}  // namespace gpunbd::tools
