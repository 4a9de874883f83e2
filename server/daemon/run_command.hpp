// Runs the command of --run. The server ends with the command.
#pragma once

#include <string>

#include "server/daemon/captive_command.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/server_control.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class RunCommand final : public Service {
 public:
    // `context.command.run` must be set.
    RunCommand(ServerContext& context, ServerControl& control);

    void start() override;
    void stop() override;  // kills it

    const std::string& socket_path() const { return command_.socket_path(); }
    void terminate() const { command_.terminate(); }
    bool running() const { return command_.running(); }
    void on_child_exit();

 private:
    ServerContext& context_;
    ServerControl& control_;
    CaptiveCommand command_;
};

}  // namespace gpunbd::server
