// `gpunbd serve`
#pragma once

#include <unistd.h>

#include "config/command_line/command.hpp"
#include "config/serve_command.hpp"
#include "server/tools/serve/read_flags.hpp"

namespace gpunbd::tools {

class ServeCommand final : public config::Command {
 public:
    ServeCommand();
    void check() override;
    int run(const config::Commands& all) override;

    config::ServeCommand settings;

 private:
    const pid_t parent_ = ::getppid();  // before it can end unnoticed
    GivenFlags given_;
};

}  // namespace gpunbd::tools
