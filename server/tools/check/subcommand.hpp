// `gpunbd check`
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "config/options.hpp"

namespace gpunbd::tools {

class CheckCommand final : public config::Command {
 public:
    CheckCommand();
    int run(const config::Commands& all) override;

    std::string file;
    std::optional<std::string> who;  // the client, and its names in TLS
    std::optional<std::string> tls_name;
    std::optional<std::string> psk_user;
    bool json = false;

 private:
    int answer(const config::Options& options) const;
    int refuse(const std::vector<config::Problem>& problems) const;
};

}  // namespace gpunbd::tools
