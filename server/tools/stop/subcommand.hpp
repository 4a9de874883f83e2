#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::status {

// `gpunbd stop`: ends a running server by SIGTERM, and waits until its process has ended.
struct StopOptions {
    std::optional<std::string> socket = {};
    std::optional<std::string> pidfile = {};
    bool json = false;
    std::optional<std::chrono::seconds> timeout = {};  // none: waits without a limit
};

// `folders`: the usual folders of server sockets. Returns the exit status. Throws what fmt::print()
// throws.
int run_stop(const StopOptions& command, const std::vector<std::string>& folders);

}  // namespace gpunbd::status

namespace gpunbd::tools {

// `gpunbd stop`
class StopCommand final : public config::Command {
 public:
    StopCommand();
    int run(const config::Commands& all) override;

    status::StopOptions settings;
};

}  // namespace gpunbd::tools
