// `gpunbd detach`
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class DetachCommand final : public config::Command {
 public:
    DetachCommand();
    void store_arguments(const std::vector<std::string>& arguments) override;
    int run(const config::Commands& all) override;

    std::uint32_t device = 0;  // the N of /dev/nbdN
    bool force = false;
    std::optional<std::uint64_t> at_shutdown;  // seconds
};

}  // namespace gpunbd::tools
