// `gpunbd detach`
#pragma once

#include <cstdint>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class DetachCommand final : public config::Command {
 public:
    DetachCommand();
    int run(const config::Commands& all) override;

    std::uint32_t device = 0;  // the N of /dev/nbdN
    bool force = false;
};

}  // namespace gpunbd::tools
