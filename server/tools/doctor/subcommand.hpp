// `gpunbd doctor`
#pragma once

#include <optional>
#include <string>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class DoctorCommand final : public config::Command {
 public:
    DoctorCommand();
    void check() override;
    int run(const config::Commands& all) override;

    std::string topic;  // empty: all of them
    bool json = false;
    std::optional<std::string> config_file;
};

}  // namespace gpunbd::tools
